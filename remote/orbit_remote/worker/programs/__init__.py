"""Programs of a project: built by the project's own build system, and run only where they are known to be of the saved text"""
