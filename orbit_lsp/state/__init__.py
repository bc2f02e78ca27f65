"""What the server knows: settings, open files, results."""
