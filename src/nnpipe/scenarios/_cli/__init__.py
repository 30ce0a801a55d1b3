"""Functions that the commands share: parsing, options, and tables for the terminal."""
