"""Functions that are copied unchanged into scripts, together with the functions that they call.

Scripts run without nnpipe, so these functions use only the standard library and
the script's framework.  The script itself imports the framework.
"""
