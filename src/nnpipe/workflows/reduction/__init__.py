"""Cutting a model whose compiled form fails or differs down to the few nodes that still show the
fault.
"""
