"""Fixed-point multiplication as the generated code does it, for tables."""

from __future__ import annotations


def rescaled(x: int, multiplier: int, shift: int) -> int:
    """Return a 32-bit number times a factor, rounded twice as TensorFlow Lite's reference kernels do."""
    left, right = max(shift, 0), max(-shift, 0)
    product = (x << left) * multiplier
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) >> 31
    high = high if nudged >= 0 else -high
    rest, mask = high & ((1 << right) - 1), (1 << right) - 1
    return (high >> right) + (rest > (mask >> 1) + (high < 0))
