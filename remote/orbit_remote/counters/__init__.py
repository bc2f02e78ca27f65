"""Reads the GPU's counters and warp samples of launches by CUPTI, and finds the source lines that they belong to."""
