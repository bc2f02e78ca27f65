"""Takes a launch that a driver makes as a launch spec: what it was given, what it wrote, and the text that replays
it.
"""
