"""Child processes: groups that end as a whole, programs with limits."""
