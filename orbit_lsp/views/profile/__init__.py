"""Shows profiles in the editor: hints, hovers, annotated lines."""
