"""How a CUDA file of a project is compiled: found in its build files, or inferred, without running anything"""
