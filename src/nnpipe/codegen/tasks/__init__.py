"""The tasks of scripts, one class each."""
