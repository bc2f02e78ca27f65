"""The language server: handlers, commands, what an editor is told. It alone imports pygls."""
