"""How a cost grows: figures at two sizes, the exponent between them, and the goals for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def growth(
    name: str,
    unit: str,
    sizes: Sequence[int],
    costs: Sequence[float],
    limit: float,
    steepest: float | None = None,
    *,
    seen_on: str,
) -> dict[str, Any]:
    """Judge one cost; give the part that ``_table.report`` takes.

    Parameters
    ----------
    name, unit
        What grows, and the unit of its cost.
    sizes, costs
        Two or more sizes, ascending, and the cost at each.
    limit
        What the cost at the greatest may be.
    steepest
        The greatest exponent: 1 is proportional, 2 quadratic; ``None`` where only the cost is
        judged.
    seen_on
        The processor on which the goal was seen to hold.
    """
    exponent = (
        math.log(costs[-1] / costs[0]) / math.log(sizes[-1] / sizes[0]) if min(costs) > 0 else 0.0
    )
    goal = f"at most {limit:g} {unit} at {sizes[-1]:,}"
    if steepest is not None:
        goal += f", exponent at most {steepest:g}"
    holds = costs[-1] <= limit and (steepest is None or exponent <= steepest)
    return {
        "name": name,
        "value": costs[-1],
        "unit": unit,
        "reference": costs[0],
        "ratio": costs[-1] / limit,
        "exponent": exponent,
        "sizes": list(sizes),
        "goal": goal,
        "holds": holds,
        "seen_on": seen_on,
    }
