"""How each kind of operator becomes a step, a module for a few kinds."""
