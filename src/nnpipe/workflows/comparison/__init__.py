"""Comparing candidates side by side: which is faster, which more accurate, and how sure that is."""
