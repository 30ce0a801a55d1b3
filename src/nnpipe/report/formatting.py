"""How numbers and foreign text are written in reports."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NOTHING = "–"
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
# Cc, Cs and Cn break files or cannot be encoded; Cf holds the marks that turn the direction of what follows.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co"})
_HOLD = "\u00a0"  # keeps a number and its unit on one line
_SPACES = re.compile(r"[^\S\u00a0]+")
_JOINERS = "\u200c\u200d"  # of the invisible marks, words in some scripts need these


def clean(text: object, limit: int = 1000) -> str:
    """Return foreign text as one line that can be encoded, read from left to right, and is not endless.

    Control characters, lone surrogates, invisible formatting and unassigned
    characters become ``U+FFFD``; white space becomes single spaces.
    """
    try:
        line = _SPACES.sub(" ", str(text)[: 4 * limit]).strip()
    except RecursionError:  # lists in lists in lists
        return "…"
    if not (line.isascii() and line.isprintable()):
        line = "".join(c if unicodedata.category(c) not in _UNSAFE or c in _JOINERS else "\ufffd" for c in line)
    return shortened(line, limit)


def shortened(text: str, limit: int) -> str:
    """Cut a line in the middle, where names differ least, to ``limit`` characters."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def distinct(names: Sequence[str], limit: int) -> list[str]:
    """Cut names to ``limit`` characters, so that what differs stays different.

    Where cutting in the middle makes two alike, what all begin with is left out instead, and where even
    that does not help, they are numbered.
    """
    found = [shortened(name, limit) for name in names]
    if len(set(found)) < len(set(names)):
        words = [name.split(" ") for name in names]
        same = 0
        while all(len(each) > same + 1 for each in words) and len({each[same] for each in words}) == 1:
            same += 1
        if same:
            found = [shortened(" ".join(["…", *each[same:]]), limit) for each in words]
    twice = {text for text in found if len({name for name, cut in zip(names, found, strict=True) if cut == text}) > 1}
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
    return [
        f"{shortened(text, limit - 7)} ({numbers[name]})" if text in twice else text
        for name, text in zip(names, found, strict=True)
    ]


def digits(value: float | None, figures: int = 3) -> str:
    """Return a number with so many significant digits and no exponent; ``–`` if there is none.

    Examples
    --------
    >>> digits(0.0123456), digits(12.3456), digits(123456.7)
    ('0.0123', '12.3', '123,457')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    # By way of the exponent, since rounding may carry: with three figures 9.996 is 10.0.
    exponent = int(f"{value:.{figures - 1}e}".partition("e")[2])
    decimals = min(figures - 1 - exponent, 12)
    return f"{value:,.{max(0, decimals)}f}"


def share(value: float | None, decimals: int = 2) -> str:
    """Return a share of one as a percentage."""
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.{decimals}f}{_HOLD}%"


def points(difference: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    text = f"{100 * difference:+.2f}".replace("-", "−")
    return text[1:] if text[1:] == "0.00" else text


def count(value: int | None) -> str:
    """Return a whole number with its thousands set apart."""
    return NOTHING if value is None else f"{value:,}"


@dataclass(frozen=True)
class Scale:
    """A unit in which several quantities are written, so that they can be compared by eye.

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
    def of_times(cls, nanoseconds: Iterable[float | None]) -> Scale:
        """Choose a unit for times in nanoseconds: the one that suits their middle."""
        return cls(*_fitting(_TIMES, nanoseconds))

    @classmethod
    def of_sizes(cls, sizes: Iterable[float | None]) -> Scale:
        """Choose a decimal unit for sizes in bytes."""
        return cls(*_fitting(_SIZES, sizes))

    def text(self, value: float | None, figures: int = 3) -> str:
        """Return a quantity in this unit, without the unit's name."""
        return digits(None if value is None else value / self.divisor, figures)

    def range(self, interval: tuple[float, float] | None) -> str:
        """Return an interval in this unit, without the unit's name; nothing where there is none."""
        return "" if interval is None else f"{self.text(interval[0])} to {self.text(interval[1])}"


def duration(nanoseconds: float | None, figures: int = 3) -> str:
    """Return a time with the unit that suits it."""
    return _with_unit(Scale.of_times([nanoseconds]), nanoseconds, figures)


def size(number_of_bytes: float | None, figures: int = 3) -> str:
    """Return a size with the decimal unit that suits it."""
    return _with_unit(Scale.of_sizes([number_of_bytes]), number_of_bytes, figures)


def _with_unit(scale: Scale, value: float | None, figures: int) -> str:
    text = scale.text(value, figures)
    return text if text == NOTHING else f"{text}{_HOLD}{scale.unit}"


def _fitting(units: tuple[tuple[str, float], ...], values: Iterable[float | None]) -> tuple[str, float]:
    present = sorted(value for value in values if value is not None and math.isfinite(value) and value > 0)
    middle = present[(len(present) - 1) // 2] if present else 1.0
    return next((unit for unit in units if middle >= unit[1]), units[-1])
