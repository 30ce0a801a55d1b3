"""Predicting how long a network takes: kernels that are measured once, an estimator, and its
intervals.
"""
