"""Programs of a project. The project's own build system builds them, and they run only if they are known to be of the
saved text.
"""
