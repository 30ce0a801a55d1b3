"""What components of different families share because they use one framework."""
