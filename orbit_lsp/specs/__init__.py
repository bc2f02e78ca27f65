"""From a kernel in an open file to a job: its checked launch spec, its launch plan."""
