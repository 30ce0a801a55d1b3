"""What a model's ``forward`` gives while it is trained: tensors with their targets, losses and metrics.

Each class lies in a module of its own, as with all families.
"""
