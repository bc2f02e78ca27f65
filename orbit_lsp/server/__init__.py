"""The language server: handlers, commands, messages to the editor. Only this package imports pygls."""
