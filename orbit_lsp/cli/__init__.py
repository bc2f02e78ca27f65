"""The command line: arguments, one module a command, terminal output."""
