"""The launch-spec language: text -> tree -> values. Pure, and shared by both sides."""
