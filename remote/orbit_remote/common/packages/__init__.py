"""How packages get into a Python, and which package has a missing module."""
