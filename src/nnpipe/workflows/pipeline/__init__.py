"""Pipeline files: reading, checking, compiling what they name, and writing them as scripts."""
