"""Finds the line on which a GPU kernel failed or hung, from GPU core dumps and compute-sanitizer."""
