"""Pipeline files: reading, checking and carrying them out, and writing them as scripts."""
