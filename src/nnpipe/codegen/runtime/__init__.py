"""Functions that are copied into scripts, as they stand here, with whatever they call.

Scripts run where nnpipe is not installed, so these functions use the standard
library and the script's framework alone.  Names of frameworks are bound by the
script's own imports.
"""
