"""Values in the content of a result file, which may come from an untrusted source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from nnpipe.report.formatting import clean

_MOST = 100_000  # greatest number of entries in a list

T = TypeVar("T")


def listed(data: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of a name.

    Raises
    ------
    KeyError
        If there is none.
    TypeError, ValueError
        If it is no list, or too long.
    """
    found = of_type(list, data[name], repr(name))
    if len(found) > _MOST:
        raise ValueError(f"{name!r} has too many entries")
    return found


def share_of(value: Any) -> float:
    """Return a share from 0 to 1, or raise :class:`TypeError` or :class:`ValueError`."""
    number = number_of(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{number:g} is not a share from 0 to 1")
    return number


def number_of(value: Any) -> float:
    """Return a number of moderate size, or raise :class:`TypeError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise TypeError(f"{clean(repr(value), 40)} is not a number")
    return float(value)


def of_type(kind: type[T], value: Any, what: str) -> T:
    """Return a value of a type, or raise :class:`TypeError`, which names what it should be."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} should be a {kind.__name__}, not {clean(repr(value), 40)}")
    return value
