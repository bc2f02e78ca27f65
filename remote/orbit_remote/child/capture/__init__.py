"""A launch that a driver makes, taken as a launch spec: what it was given, what it wrote, and the text that replays it"""
