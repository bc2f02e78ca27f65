"""KernelBench and popcorn: checks and times a file against its reference."""
