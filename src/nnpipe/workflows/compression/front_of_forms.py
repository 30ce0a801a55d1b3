"""Choosing a form for each layer by bytes and noise alone, before any model is run."""

from __future__ import annotations

import math
from collections.abc import Mapping

Costs = Mapping[str, Mapping[str, tuple[float, float]]]
"""Of each layer and each form: the bytes, and the noise."""


def balanced(costs: Costs, price: float) -> dict[str, str]:
    """Return the form of each layer by which bytes and noise together cost least.

    Each layer's noise counts by itself, so that the choice of one does not depend on those of others.

    Parameters
    ----------
    costs
        Bytes and noise by layer and form.
    price
        How many bytes a doubling of the noise is worth that all layers together have.

    Examples
    --------
    >>> costs = {"a": {"int8": (100, 0.001), "int4": (50, 0.01)}, "b": {"int8": (9, 0.001), "int4": (5, 0.1)}}
    >>> balanced(costs, 2000.0)
    {'a': 'int4', 'b': 'int8'}
    """
    return {
        layer: min(forms, key=lambda form: (forms[form][0] + price * forms[form][1], forms[form][0]))
        for layer, forms in costs.items()
    }


def front(costs: Costs, count: int) -> list[dict[str, str]]:
    """Return at most ``count`` different choices, from the most bytes to the most noise."""
    noises = [noise for forms in costs.values() for _, noise in forms.values() if noise > 0]
    if not noises:
        return [balanced(costs, 1.0)]
    sizes = [size for forms in costs.values() for size, _ in forms.values()]
    # At the first price even the least noise outweighs all bytes, and at the last no noise outweighs a byte.
    start, end = math.log(sum(sizes) / min(noises)), math.log(min(sizes) / (10 * max(noises)))
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for step in range(400):
        chosen = balanced(costs, math.exp(start + (end - start) * step / 399))
        found[tuple(chosen.items())] = None
    every = list(found)
    if len(every) > count:
        every = [every[round(place * (len(every) - 1) / max(count - 1, 1))] for place in range(count)]
    return [dict(each) for each in every]
