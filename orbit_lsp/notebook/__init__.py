"""Notebook kernels: Jupyter's messages passed on to an ipykernel, in the user's own Python or on a rented GPU, which we start and end"""
