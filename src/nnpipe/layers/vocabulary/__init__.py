"""The vocabulary: every layer with its table, and values inside layers, such as initialisers."""
