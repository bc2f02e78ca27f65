"""Drafts launch specs for an author, from the launch in host code or from a kernel's signature."""
