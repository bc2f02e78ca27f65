"""Profiles as data: bottleneck, roofline, kept reports and compiler output."""
