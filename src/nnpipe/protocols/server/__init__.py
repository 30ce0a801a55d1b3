"""The server: a supervisor accepts clients and forks a worker for each, which runs the model."""
