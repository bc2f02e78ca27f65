"""How a project that CMake builds compiles a source, and what it makes"""
