"""Comparing candidates side by side: which is faster, which predicts better, and how certain
that is.
"""
