"""Notebook kernels: Jupyter's messages passed on to an ipykernel, in the user's own Python or on another machine, which we start and end"""
