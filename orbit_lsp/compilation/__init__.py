"""Finds how a CUDA file of a project is compiled, in its build files or by inference, without running anything."""
