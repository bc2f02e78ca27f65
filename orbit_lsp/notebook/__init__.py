"""Notebook kernels. Jupyter's messages are passed on to an ipykernel that we start and end, in the user's own Python
or on another machine.
"""
