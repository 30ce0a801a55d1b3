"""Sweeps: reading the file, measuring every combination, choosing one and certifying it."""
