"""Follows a job from start to end: the scheduler, and results stored under their kernels."""
