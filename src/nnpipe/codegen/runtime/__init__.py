"""Functions that are copied into scripts unchanged, with the functions that they call.

Scripts run without nnpipe, so these functions use only the standard library and
the script's framework.  The script's own imports bind the names of frameworks.
"""
