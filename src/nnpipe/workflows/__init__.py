"""The work of every command, as Python calls."""
