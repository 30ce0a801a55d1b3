"""Plugins: a user's functions for data sets, test data and model outputs."""
