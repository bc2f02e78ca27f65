"""Shows the answer of a kernel's last run in few words: its lens, its hint, the first lines of its hover, and where
they stand.
"""
