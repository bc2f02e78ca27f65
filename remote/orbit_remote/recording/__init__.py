"""Records kernel launches of a program through CUPTI, with NVML beside them."""
