"""Profiles in the editor: hints, hovers, annotated lines."""
