"""Descriptions: networks as people write them in YAML or JSON."""
