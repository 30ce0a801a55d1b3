"""Anomaly maps: how unusual each pixel of a picture is."""
