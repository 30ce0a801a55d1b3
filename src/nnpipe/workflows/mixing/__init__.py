"""Choosing which tensors of a quantised model stay in floats."""
