"""Running a model on the test data of a plugin."""
