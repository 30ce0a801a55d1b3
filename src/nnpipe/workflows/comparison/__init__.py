"""Comparing candidates side by side: which is faster, which is more accurate, and how certain that is."""
