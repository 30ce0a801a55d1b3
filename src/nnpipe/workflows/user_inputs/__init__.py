"""What users hand over in Python, as what the work is done with: models become files, and data a data set."""
