"""Candidates: making, opening, deploying and measuring them."""
