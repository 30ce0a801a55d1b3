"""Readers of data, one a type of file."""
