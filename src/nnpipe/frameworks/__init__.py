"""Code for each framework that is shared by components of different families."""
