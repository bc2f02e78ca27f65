"""Launch specs on the GPU: memory, launches, checks, times."""
