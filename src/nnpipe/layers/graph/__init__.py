"""Graphs of layers: shapes, weights, networks as layers, and what changes from one network to the next."""
