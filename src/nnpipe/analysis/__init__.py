"""Judging predictions: quality metrics computed from arrays, with numpy alone."""
