"""Protocols: lines between a host and a target."""
