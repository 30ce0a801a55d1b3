"""Measuring a model, and compiling it, in one call each."""
