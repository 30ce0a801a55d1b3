"""From the operators of a TensorFlow Lite file to C99 that needs no operating system."""
