"""What looks on while a model is trained, each in a module of its own."""
