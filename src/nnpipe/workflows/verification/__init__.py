"""Checking whether two models compute the same, and whether one result is worse than another."""
