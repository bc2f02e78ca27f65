"""Runs Nsight Compute: which kernels it profiles, how it is run, what its report holds."""
