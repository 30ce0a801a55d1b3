"""Measuring: the loop, the clock, the probes, and the result file.

This package stands on ``nnpipe.core`` alone, so that a target can measure with
nothing else installed.
"""
