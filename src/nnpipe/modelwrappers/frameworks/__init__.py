"""Bases of model wrappers, one for each training framework."""
