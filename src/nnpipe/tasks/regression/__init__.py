"""Regression: numbers for each sample."""
