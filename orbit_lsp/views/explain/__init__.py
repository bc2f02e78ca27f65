"""Explains things: outcomes, counters, diagnostics, the instructions of a listing."""
