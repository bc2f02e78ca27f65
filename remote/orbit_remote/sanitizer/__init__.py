"""Runs compute-sanitizer, and reads what it found."""
