"""Model wrappers: models in the frameworks that train them."""
