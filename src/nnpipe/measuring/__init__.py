"""Measuring: the loop, the clock, the probes, and the result file.

This package imports only ``nnpipe.core``, numpy and psutil, so that a target can measure
with nothing else installed.
"""
