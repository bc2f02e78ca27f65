"""KernelBench and popcorn: a file checked and timed against its reference."""
