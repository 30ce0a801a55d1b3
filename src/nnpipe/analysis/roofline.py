"""How close an operation comes to what its machine can do: the roofline model.

An operation cannot take less time than its arithmetic takes at the machine's greatest rate, nor
less than its memory traffic takes at the greatest bandwidth of the memory that holds its data; the
longer of the two is its least time, and the least time by the measured one is its share of the roof
(S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52 (2009), 65-76).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.core.errors import ArtifactError

MOST_SPREAD = 0.10
"""Repeats that differ by more than this share of the greatest one tell no ceiling."""
DOUBTFUL = 1.05
"""No operation is faster than its roof; from this share on, a doubt is told."""

_LEVELS = 16
_KIND = "nnpipe ceilings"
_SCHEMA = 1


@dataclass(frozen=True)
class Ceiling:
    """The greatest rate that was reached, in operations or bytes a second, in each of some repeats.

    Parameters
    ----------
    repeats
        The rate of each repeat.
    how
        What reached it: ``"onnxruntime MatMul 1024"``.
    """

    repeats: tuple[float, ...]
    how: str

    def __post_init__(self) -> None:
        if not self.repeats or not all(math.isfinite(each) and each > 0 for each in self.repeats):
            raise ArtifactError("a ceiling needs rates greater than 0")

    @property
    def spread(self) -> float:
        """Return the difference between the greatest and the least repeat, as a share of the
        greatest.
        """
        return 1 - min(self.repeats) / max(self.repeats)

    @property
    def value(self) -> float | None:
        """Return the greatest rate; ``None`` if the repeats differ by more than
        :data:`MOST_SPREAD`.
        """
        return max(self.repeats) if self.spread <= MOST_SPREAD else None

    def to_json(self) -> dict[str, Any]:
        """Return the repeats as JSON can hold them."""
        return {
            "repeats": list(self.repeats),
            "how": self.how,
            "value": self.value,
            "spread": self.spread,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ceiling:
        """Make the object from the output of :meth:`to_json`."""
        return cls(tuple(float(each) for each in data["repeats"]), str(data["how"])[:200])


@dataclass(frozen=True)
class MemoryLevel:
    """A level of memory, such as a cache.

    Parameters
    ----------
    up_to_bytes
        The greatest amount of data that it holds, as measured; ``None`` for the main memory.
    bandwidth
        Bytes a second that are read from it.
    """

    up_to_bytes: int | None
    bandwidth: Ceiling


@dataclass(frozen=True)
class Ceilings:
    """What a machine can do with a number of threads.

    Parameters
    ----------
    machine
        Its processor, as text.
    threads
        The threads that worked.
    compute
        Operations a second by type of number: ``"float32"``, ``"bfloat16"``, ``"int8"``.  A
        multiply-accumulate is two.
    memory
        The levels of memory, the smallest first.
    reasons
        Why there is no ceiling of a type.
    created
        Date and time, ISO 8601.
    """

    machine: str
    threads: int
    compute: Mapping[str, Ceiling]
    memory: tuple[MemoryLevel, ...]
    reasons: Mapping[str, str]
    created: str = ""

    def find_level(self, data_bytes: float) -> MemoryLevel | None:
        """Return the smallest level that holds so much data."""
        fitting = (
            level
            for level in self.memory
            if level.up_to_bytes is None or data_bytes <= level.up_to_bytes
        )
        return next(fitting, None)

    def to_json(self) -> dict[str, Any]:
        """Return all ceilings as JSON can hold them."""
        return {
            "kind": _KIND,
            "schema": _SCHEMA,
            "machine": self.machine,
            "threads": self.threads,
            "created": self.created,
            "compute": {name: each.to_json() for name, each in self.compute.items()},
            "memory": [
                {"up_to_bytes": each.up_to_bytes, **each.bandwidth.to_json()}
                for each in self.memory
            ],
            "reasons": dict(self.reasons),
        }

    @classmethod
    def from_json(cls, data: Any) -> Ceilings:
        """Make the object from the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If it is malformed.
        """
        if (
            not isinstance(data, Mapping)
            or data.get("kind") != _KIND
            or data.get("schema") != _SCHEMA
        ):
            raise ArtifactError("not a file of ceilings")
        try:
            levels = [
                MemoryLevel(
                    None if each["up_to_bytes"] is None else int(each["up_to_bytes"]),
                    Ceiling.from_json(each),
                )
                for each in data["memory"][:_LEVELS]
            ]
            return cls(
                str(data["machine"])[:200],
                int(data["threads"]),
                {str(name)[:40]: Ceiling.from_json(each) for name, each in data["compute"].items()},
                tuple(levels),
                {str(name)[:40]: str(reason)[:300] for name, reason in data["reasons"].items()},
                str(data["created"])[:40],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(f"not a usable file of ceilings: {error!r}"[:300]) from None


@dataclass(frozen=True)
class RoofShare:
    """How close an operation comes to the roof.

    Parameters
    ----------
    share
        Its least time by its measured one; 1 is the roof.
    limit
        What its least time follows from: ``"arithmetic"`` or ``"memory"``.
    doubt
        Why the share is not to be relied on; empty if it may be.
    """

    share: float
    limit: str
    doubt: str = ""


def compute_roof_share(
    operations: float | None,
    traffic: float | None,
    seconds: float,
    ceilings: Ceilings,
    precision: str = "float32",
) -> RoofShare | None:
    """Return how close an operation comes to the roof; ``None`` if that is not known.

    Parameters
    ----------
    operations
        Operations on numbers, two for each multiply-accumulate.
    traffic
        Bytes read and written if every value moves once; the level of memory is the smallest that
        holds them.
    seconds
        The measured time.
    ceilings
        What the machine can do.
    precision
        The type of the numbers that it computes with.

    Examples
    --------
    >>> memory = (MemoryLevel(None, Ceiling((10e9,), "sum")),)
    >>> machine = Ceilings("a board", 1, {"float32": Ceiling((8e9,), "product")}, memory, {})
    >>> compute_roof_share(4e9, 1e9, 1.0, machine)
    RoofShare(share=0.5, limit='arithmetic', doubt='')
    >>> compute_roof_share(1e9, 4e9, 1.0, machine).limit
    'memory'
    """
    if operations is None or traffic is None or seconds <= 0 or not operations + traffic:
        return None
    ceiling, level = ceilings.compute.get(precision), ceilings.find_level(traffic)
    rate = None if ceiling is None else ceiling.value
    bandwidth = None if level is None else level.bandwidth.value
    if (operations and rate is None) or (traffic and bandwidth is None):
        return None
    computing = operations / rate if rate else 0.0
    moving = traffic / bandwidth if bandwidth else 0.0
    limit = "arithmetic" if computing >= moving else "memory"
    share = max(computing, moving) / seconds
    return RoofShare(share, limit, _explain_doubt(share, limit))


def find_bandwidth_drops(
    sizes: Sequence[int], rates: Sequence[float], fall: float = 0.25
) -> list[int]:
    """Return the places at which a bandwidth falls from one level of memory to the next.

    A new level begins where the rates of the following sizes, in the median, are less than those of
    the level so far by more than ``fall``.  Where rates fall over several sizes, the border is
    where they begin to.

    Parameters
    ----------
    sizes
        The amounts of data, rising.
    rates
        The bandwidth at each.
    fall
        The share by which a level is slower than the one before.

    Returns
    -------
    list of int
        The index of the first size of each level but the first.
    """
    found: list[int] = []
    begin = 0
    for place in range(1, len(sizes)):
        level = sorted(rates[begin:place])[(place - begin) // 2]
        ahead = rates[place : place + 2]
        if all(rate < (1 - fall) * level for rate in ahead):
            if place - begin > 1 or not found:  # otherwise it is still falling
                found.append(place)
            begin = place
    return found


def _explain_doubt(share: float, limit: str) -> str:
    if share <= DOUBTFUL:
        return ""
    if limit == "memory":
        return (
            "above the roof: its data were in a faster memory than their size tells, or not all of "
            "them moved"
        )
    return (
        "above the roof: the ceiling was measured too low, or less was computed than the model says"
    )
