"""What runs on a machine of the author's own that is reached by ssh: a relay for each connection, a door that keeps jobs while the link is down"""
