"""Graphs of layers: shapes, weights, networks as layers, and differences between networks."""
