"""The vocabulary: every layer with its table, and what stands inside layers, such as initialisers."""
