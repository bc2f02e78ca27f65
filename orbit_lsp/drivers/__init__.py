"""What the author already runs that launches a kernel: tests, scripts and programs, found by reading texts alone"""
