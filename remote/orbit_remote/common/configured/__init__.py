"""What a configured build left in its folder. Both sides read it."""
