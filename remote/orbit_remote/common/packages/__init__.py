"""How packages get into a Python, and which package has a module that is missing"""
