"""compute-sanitizer: how it is run, what it found."""
