"""Child processes: groups that end whole, programs with limits."""
