"""Forecasts: the next values of a series."""
