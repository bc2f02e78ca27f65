"""Notebook kernels: Jupyter's messages passed on to an ipykernel in the user's own Python, which we start and end"""
