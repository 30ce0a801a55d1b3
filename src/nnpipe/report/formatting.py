"""Formatting of numbers and of text from outside for reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnpipe.core.foreign_text import sanitize_text

NOTHING = "–"
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_ENERGIES = (("J", 1.0), ("mJ", 1e-3), ("µJ", 1e-6), ("nJ", 1e-9))
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_COUNTS = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_HOLD = "\u00a0"  # keeps a number and its unit on one line
_SPACES = re.compile(r"[^\S\u00a0]+")


def clean(text: object, limit: int = 1000) -> str:
    """Return text from outside as one harmless line of at most ``limit`` characters; white space
    becomes single spaces.

    See :func:`~nnpipe.core.foreign_text.sanitize_text`.
    """
    try:
        line = _SPACES.sub(" ", str(text)[: 4 * limit]).strip()
    except RecursionError:  # lists in lists in lists
        return "…"
    return shorten(sanitize_text(line), limit)


def shorten(text: str, limit: int) -> str:
    """Return a line of at most ``limit`` characters, cut in the middle, where names differ
    least.
    """
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def shorten_distinctly(names: Sequence[str], limit: int) -> list[str]:
    """Return names that are cut to ``limit`` characters, so that different names stay different.

    If cutting in the middle makes two names equal, their common first words are left out instead.
    Names that are still equal are numbered.
    """
    found = [shorten(name, limit) for name in names]
    if len(set(found)) < len(set(names)):
        words = [name.split(" ") for name in names]
        same = 0
        while (
            all(len(each) > same + 1 for each in words) and len({each[same] for each in words}) == 1
        ):
            same += 1
        if same:
            found = [shorten(" ".join(["…", *each[same:]]), limit) for each in words]
    twice = {
        text
        for text in found
        if len({name for name, cut in zip(names, found, strict=True) if cut == text}) > 1
    }
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
    return [
        f"{shorten(text, limit - 7)} ({numbers[name]})" if text in twice else text
        for name, text in zip(names, found, strict=True)
    ]


def format_number(value: float | None, figures: int = 3) -> str:
    """Return a number with ``figures`` significant digits and no exponent; ``–`` for ``None`` and
    infinite values.

    Examples
    --------
    >>> format_number(0.0123456), format_number(12.3456), format_number(123456.7)
    ('0.0123', '12.3', '123,457')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    # The exponent is taken after rounding, which may carry: with three digits 9.996 is 10.0.
    exponent = int(f"{value:.{figures - 1}e}".partition("e")[2])
    decimals = min(figures - 1 - exponent, 12)
    return f"{value:,.{max(0, decimals)}f}"


def format_share(value: float | None, decimals: int = 2) -> str:
    """Return a share of one as a percentage; ``–`` for ``None`` and infinite values."""
    return (
        NOTHING
        if value is None or not math.isfinite(value)
        else f"{100 * value:.{decimals}f}{_HOLD}%"
    )


def format_percentage_points(difference: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    text = f"{100 * difference:+.2f}".replace("-", "−")
    return text[1:] if text[1:] == "0.00" else text


def format_count(value: int | None) -> str:
    """Return a whole number with separators of thousands; ``–`` for ``None``."""
    return NOTHING if value is None else f"{value:,}"


@dataclass(frozen=True)
class Scale:
    """A common unit of several quantities, which makes them easy to compare.

    Parameters
    ----------
    unit
        The name of the unit.
    divisor
        The divisor of stored quantities.
    """

    unit: str
    divisor: float

    @classmethod
    def from_times(cls, nanoseconds: Iterable[float | None]) -> Scale:
        """Return the unit that suits the median of times in nanoseconds."""
        return cls(*_select_unit(_TIMES, nanoseconds))

    @classmethod
    def from_sizes(cls, sizes: Iterable[float | None]) -> Scale:
        """Return the decimal unit that suits the median of sizes in bytes."""
        return cls(*_select_unit(_SIZES, sizes))

    @classmethod
    def from_energies(cls, joules: Iterable[float | None]) -> Scale:
        """Return the unit that suits the median of energies in joules."""
        return cls(*_select_unit(_ENERGIES, joules))

    @classmethod
    def from_counts(cls, counts: Iterable[float | None]) -> Scale:
        """Return the multiple that suits the median of counts; the unit has no name below a
        thousand.
        """
        return cls(*_select_unit(_COUNTS, counts))

    def text(self, value: float | None, figures: int = 3) -> str:
        """Return a quantity in this unit, without the unit's name."""
        return format_number(None if value is None else value / self.divisor, figures)

    def format_interval(self, interval: tuple[float, float] | None) -> str:
        """Return an interval in this unit, without the unit's name; the empty string for
        ``None``.
        """
        return "" if interval is None else f"{self.text(interval[0])} to {self.text(interval[1])}"


def format_duration(nanoseconds: float | None, figures: int = 3) -> str:
    """Return a time in nanoseconds as text, with the unit that suits it."""
    return _format_with_unit(Scale.from_times([nanoseconds]), nanoseconds, figures)


def format_size(number_of_bytes: float | None, figures: int = 3) -> str:
    """Return a size in bytes as text, with the decimal unit that suits it."""
    return _format_with_unit(Scale.from_sizes([number_of_bytes]), number_of_bytes, figures)


def format_energy(joules: float | None, figures: int = 3) -> str:
    """Return an energy in joules as text, with the unit that suits it."""
    return _format_with_unit(Scale.from_energies([joules]), joules, figures)


def format_abbreviated_count(number: float | None, figures: int = 3) -> str:
    """Return a count as text, from a thousand on in ``k``, ``M`` or ``G``."""
    return _format_with_unit(Scale.from_counts([number]), number, figures).rstrip(_HOLD)


def _format_with_unit(scale: Scale, value: float | None, figures: int) -> str:
    text = scale.text(value, figures)
    return text if text == NOTHING else f"{text}{_HOLD}{scale.unit}"


def _select_unit(
    units: tuple[tuple[str, float], ...], values: Iterable[float | None]
) -> tuple[str, float]:
    present = sorted(
        value for value in values if value is not None and math.isfinite(value) and value > 0
    )
    middle = present[(len(present) - 1) // 2] if present else 1.0
    return next((unit for unit in units if middle >= unit[1]), units[-1])


BASES = {"cost_per_hour": "an hour", "cost_per_piece": "a piece"}
"""What a price is for, by the field that holds it."""


def format_price(cost: float, basis: str, currency: str = "") -> str:
    """Return a price as text, such as ``80 EUR a piece``."""
    return f"{cost:,.10g}{' ' + currency if currency else ''} {BASES[basis]}"


def format_prices(
    cost_per_hour: float | None, cost_per_piece: float | None, currency: str = ""
) -> str:
    """Return all prices of a device that are known as text; empty if none is."""
    known = {"cost_per_hour": cost_per_hour, "cost_per_piece": cost_per_piece}
    return ", ".join(
        format_price(cost, basis, currency) for basis, cost in known.items() if cost is not None
    )
