"""The tests and scripts of a project, run in a process of ours"""
