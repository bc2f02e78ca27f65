"""Commands that take jobs: jobs, mcp, watch, api."""
