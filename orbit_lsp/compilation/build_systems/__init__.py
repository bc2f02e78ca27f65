"""Reads what build files of each kind say of how a source is compiled. Each is read as text, and nothing of it is
run.
"""
