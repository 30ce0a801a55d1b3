"""What the commands share: parsing, tables for the terminal, options."""
