"""Finds Triton kernels in Python text."""
