"""Runs nvcc: builds, their cache, and what the compiler reports."""
