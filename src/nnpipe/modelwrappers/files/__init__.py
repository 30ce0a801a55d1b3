"""Models that somebody else trained: a file and a few options, no code."""
