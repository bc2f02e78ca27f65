"""Kernel launches of a program, recorded through CUPTI, with NVML beside them."""
