"""Searching how the weights of each layer of a model are stored."""
