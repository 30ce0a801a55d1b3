"""Outputs: what a model's ``forward`` returns in training, with targets, losses and metrics.

Each class has a module of its own, as in all families.
"""
