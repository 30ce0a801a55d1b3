"""Anomaly detection in series: windows of points around anomalies, which are to be found early."""
