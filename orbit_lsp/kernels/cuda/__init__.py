"""Finds kernels in CUDA text."""
