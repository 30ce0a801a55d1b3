"""Work in subprocesses, so that a crash or a hang costs one task."""
