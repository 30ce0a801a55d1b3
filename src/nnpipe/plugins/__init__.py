"""A user's own functions: what to do with data, test data and a model's outputs."""
