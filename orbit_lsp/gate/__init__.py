"""The gate of a change: its kernels against their base, in turn on the same GPU, with one bound on false alarms for all of them"""
