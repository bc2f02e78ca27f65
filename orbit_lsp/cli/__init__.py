"""The command line: arguments, one module for each command, terminal output."""
