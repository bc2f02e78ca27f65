"""Runs the tests and scripts of a project in a process of ours."""
