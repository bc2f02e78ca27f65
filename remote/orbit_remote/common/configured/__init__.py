"""What a configured build left in its folder: both sides read it"""
