"""Descriptions: networks written in YAML or JSON."""
