"""The interfaces and values that everything else stands on.

This package imports the standard library and numpy, and nothing else.
"""
