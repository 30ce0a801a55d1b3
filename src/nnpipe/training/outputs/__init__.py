"""Outputs: what a model's ``forward`` returns in training, with targets, losses and metrics.

Each class lies in a module of its own, as with all families.
"""
