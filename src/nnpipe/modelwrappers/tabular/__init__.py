"""Models of the columns of tables."""
