"""Searches: carrying out the trials of functions and pipelines, from Python and from a file."""
