"""The run database: what was run, with which settings and code, and what came of it."""
