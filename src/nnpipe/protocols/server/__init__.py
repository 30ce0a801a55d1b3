"""Serving: a supervisor admits clients and forks a worker for each, which runs the model."""
