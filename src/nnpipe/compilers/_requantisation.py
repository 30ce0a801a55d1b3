"""Scales with which XNNPACK can compute products of 8-bit integers.

It multiplies the sums of a convolution or a linear layer by the scale of the input times that of the weights, divided
by that of the result, and refuses to create the operation if this factor is 256 or more, so that the whole model cannot
be loaded.  This happens in networks with a channel that is far larger than the others: one step of such an input
outweighs 256 steps of the result.  The result's scale is then increased until the factor is small enough.  A step of
the sums, in which the result is exact at best, is still 255 steps of the result.
"""

from __future__ import annotations

_MOST = 255.0  # XNNPACK's limit is 256, for numbers in single precision


def widening(taken: float, weight: float, given: float) -> float:
    """Return by how much the scale of a result has to be increased; 1 if XNNPACK can compute it as it is.

    Parameters
    ----------
    taken
        The scale of the input.
    weight
        The greatest scale of the weights.
    given
        The scale of the result.

    Examples
    --------
    >>> widening(0.1, 0.01, 0.05), widening(51000, 0.01, 1)
    (1.0, 2.0)
    """
    return max(1.0, taken * weight / given / _MOST) if given > 0 else 1.0
