"""The client: a session on a model that another machine runs."""
