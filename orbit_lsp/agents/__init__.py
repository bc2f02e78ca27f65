"""Doors for programs that write kernels: MCP for agents, and a folder that files are dropped in"""
