"""Experiments as trees of modules whose state can be saved, restored and stored."""
