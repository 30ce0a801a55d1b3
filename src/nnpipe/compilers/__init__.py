"""Compilers: what converts, optimises and quantises models."""
