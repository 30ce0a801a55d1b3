"""The run database: runs with their settings, code and results."""
