"""`orbit-lsp loop`: a worker changes a kernel; the loop measures the change, and keeps or reverts it, again and
again.
"""
