"""Doors for programs that write kernels: MCP for agents, a folder for dropped files, and a loop."""
