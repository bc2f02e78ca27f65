"""The GPU's counters and warp samples of launches, by CUPTI, and the source lines that they belong to"""
