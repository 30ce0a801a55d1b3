"""Detection: boxes around the things in a picture, with their classes."""
