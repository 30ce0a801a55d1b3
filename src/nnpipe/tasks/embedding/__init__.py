"""Embedding: vectors of samples, by which similar samples are found."""
