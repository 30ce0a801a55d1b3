"""What devices cost, as text."""

from __future__ import annotations

BASES = {"cost_per_hour": "an hour", "cost_per_piece": "a piece"}
"""What a price is for, by the field that holds it."""


def price(cost: float, basis: str, currency: str = "") -> str:
    """Return a price as text, such as ``80 EUR a piece``."""
    return f"{cost:,.10g}{' ' + currency if currency else ''} {BASES[basis]}"


def prices(cost_per_hour: float | None, cost_per_piece: float | None, currency: str = "") -> str:
    """Return all prices of a device that are known as text; empty if none is."""
    known = {"cost_per_hour": cost_per_hour, "cost_per_piece": cost_per_piece}
    return ", ".join(price(cost, basis, currency) for basis, cost in known.items() if cost is not None)
