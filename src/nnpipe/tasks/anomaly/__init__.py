"""Anomaly detection: how unusual each sample is."""
