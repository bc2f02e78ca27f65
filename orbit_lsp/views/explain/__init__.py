"""What things mean: outcomes, counters, diagnostics, the instructions of a listing"""
