"""Search spaces of architectures: cells stacked into declared networks, supernets, and
differentiable search.
"""
