"""Devices on which candidates are measured: read from a file, looked after, and shared."""
