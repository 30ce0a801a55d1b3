"""Candidates: where they come from, how they are opened, deployed and measured."""
