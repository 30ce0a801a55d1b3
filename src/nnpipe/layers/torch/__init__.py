"""PyTorch: modules built from graphs, and trained by the losses of their outputs."""
