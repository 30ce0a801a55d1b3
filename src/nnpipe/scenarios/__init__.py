"""Scenarios: the commands, one short module each."""
