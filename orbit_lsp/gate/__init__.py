"""The gate of a change: it compares its kernels with their base, in turn on the same GPU, with one bound on false
alarms for all of them.
"""
