"""Reads what CMake's files say of a project: how a source is compiled, and which programs there are."""
