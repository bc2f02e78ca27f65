"""Python text -> Triton kernels."""
