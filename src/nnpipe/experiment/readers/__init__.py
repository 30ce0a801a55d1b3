"""Readers of data, one for each type of file."""
