"""The contents of files that keep KernelBench's or popcorn's contract."""
