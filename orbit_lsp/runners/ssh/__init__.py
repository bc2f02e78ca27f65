"""Runs jobs on a GPU of the author's own on another machine, reached by the system's ssh."""
