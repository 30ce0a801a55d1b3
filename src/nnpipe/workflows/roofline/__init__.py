"""What a machine can do at most: ceilings of arithmetic and memory, kept per machine."""
