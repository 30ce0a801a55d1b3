"""Recorded runs for other tools."""
