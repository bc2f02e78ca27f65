"""The functions and operators of launch specs."""
