"""Makes a job from a kernel in an open file: its checked launch spec, its launch plan."""
