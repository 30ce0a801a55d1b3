"""Exporting recorded runs to other tools."""
