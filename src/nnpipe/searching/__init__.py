"""Searching: spaces of configurations, the trials of a search, and the samplers and pruners that
choose among them.
"""
