"""What runs on a machine of the author's own that is reached by ssh: a relay for each connection, and a proxy for
each of the author's programs, which keeps its jobs while the link is down.
"""
