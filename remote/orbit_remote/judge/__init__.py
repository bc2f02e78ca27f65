"""The judge: it runs a candidate and its reference in locked processes, and measures and compares them from outside
of both.
"""
