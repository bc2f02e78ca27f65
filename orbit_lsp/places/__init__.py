"""Decides where jobs run and how files are compiled: settings in force, the project's Python, this machine, hosts and
rented GPUs.
"""
