"""What a network costs, layer by layer, and why."""
