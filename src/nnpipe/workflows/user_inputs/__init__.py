"""Converting arguments from Python: models become files, and data become a data set."""
