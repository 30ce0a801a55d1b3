"""The interfaces and values on which all other packages build.

This package imports the standard library and numpy, and nothing else.
"""
