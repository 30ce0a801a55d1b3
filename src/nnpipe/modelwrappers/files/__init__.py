"""Models from files: a file and a few options, no code."""
