"""Earlier runs: the store, the versions of a kernel, comparing two of them."""
