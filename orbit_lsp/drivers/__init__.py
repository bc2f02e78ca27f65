"""What the author already runs that launches a kernel: tests and scripts, found by reading texts alone"""
