"""CUDA text -> kernels."""
