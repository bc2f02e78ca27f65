"""The language server: handlers, commands, messages to the editor. It alone imports pygls."""
