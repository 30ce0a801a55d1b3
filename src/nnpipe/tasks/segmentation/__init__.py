"""Segmentation: a class for each pixel."""
