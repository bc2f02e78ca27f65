"""Finds what the author already runs that launches a kernel: tests, scripts and programs. It only reads texts."""
