"""The engine that every door has: editor, command line, queue, loop and notebook."""
