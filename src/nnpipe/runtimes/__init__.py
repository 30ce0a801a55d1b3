"""Runtimes: what runs compiled models."""
