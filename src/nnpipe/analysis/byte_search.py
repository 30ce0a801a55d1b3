"""Find the weights of a channel in the bytes of a file: as floats up to a factor, or rounded to integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.generic]
Reals = npt.NDArray[np.float64]
View = tuple[str, int]
"""A way to read bytes: the dtype of the numbers, and the byte at which they begin."""

_TOLERANCE = {"float32": 1e-4, "float16": 2e-3}  # of the ratio of two neighbours
_ALIKE = {"float32": 1e-6, "float16": 1e-4, "int8": 0.01}  # 1 - correlation up to which a channel is found
_MOST_TRIED = 200  # positions that are compared completely
_ANCHORS = 4  # the largest weights of a channel, by which positions are selected
_WINDOW = 6  # integers that are searched for at once
# Integers that the largest weight of a channel may become; a first layer may get half of them, for sums of 16 bits.
_MOST_LEVELS = (127.0, 127.5, 128.0, 63.0, 63.5, 64.0)
_MOST = 1 << 28  # bytes


class ByteSearch:
    """Searches bytes for the weights of channels; must be used by one thread only."""

    def __init__(self, content: bytes) -> None:
        self._content = content[:_MOST]
        self._parts: dict[int, list[bytes]] = {}
        self._levels = 0.0  # by which integers were found before
        self._views: dict[View, Numbers] = {}
        self._ratios: dict[tuple[str, int, int], tuple[Numbers, Numbers]] = {}

    def places(self, row: Numbers, stride: int, view: View) -> Iterator[int]:
        """Yield the positions in a view at which the weights of a channel begin, with ``stride`` between weights."""
        return (self._codes_at if view[0] == "int8" else self._floats_at)(row, stride, view)

    def _floats_at(self, row: Numbers, stride: int, view: View) -> Iterator[int]:
        """Yield the positions of the weights of a channel as floats, multiplied by any factor."""
        own: Reals = row.astype(np.float64)
        sizes = np.minimum(np.abs(own[:-1]), np.abs(own[1:]))
        at = int(np.argmax(sizes))
        if sizes[at] == 0:
            return
        ratio, tolerance = own[at + 1] / own[at], _TOLERANCE[view[0]]
        ratios, order = self._sorted_ratios(view, stride)
        room = abs(ratio) * tolerance
        low, high = np.searchsorted(ratios, [ratio - room, ratio + room])
        values, reach = self.view(view), (len(own) - 1) * stride
        starts = order[low:high].astype(np.int64) - at * stride
        starts = starts[(starts >= 0) & (starts + reach < len(values))]
        for other in np.argsort(-np.abs(own))[:_ANCHORS]:  # most places fail at the first of these
            wanted = own[other] / own[at]
            with np.errstate(all="ignore"):
                have = values[starts + other * stride].astype(np.float64) / values[starts + at * stride]
            starts = starts[np.abs(have - wanted) <= 2 * tolerance * max(abs(wanted), 1.0)]
        for start in starts[:_MOST_TRIED].tolist():
            there = values[start : start + reach + 1 : stride].astype(np.float64)
            if _unlike(own, there) < _ALIKE[view[0]]:
                yield start

    def _sorted_ratios(self, view: View, stride: int) -> tuple[Numbers, Numbers]:
        key = (*view, stride)
        if key not in self._ratios:
            values = self.view(view).astype(np.float64)
            with np.errstate(all="ignore"):
                ratios = values[stride:] / values[:-stride]
            usable = np.flatnonzero(np.isfinite(ratios) & (ratios != 0))
            order = usable[np.argsort(ratios[usable], kind="stable")]
            self._ratios[key] = ratios[order], order
        return self._ratios[key]

    def view(self, view: View) -> Numbers:
        """Return the content as numbers, read in one way; numbers that are not finite become 0."""
        if view not in self._views:
            dtype = np.dtype(view[0])
            end = view[1] + (len(self._content) - view[1]) // dtype.itemsize * dtype.itemsize
            values = np.frombuffer(self._content[view[1] : end], dtype)
            self._views[view] = values if dtype.kind == "i" else np.where(np.isfinite(values), values, 0)
        return self._views[view]

    def _codes_at(self, row: Numbers, stride: int, view: View) -> Iterator[int]:
        """Yield the positions of the weights of a channel as rounded integers, the largest of which is about 127."""
        known: set[int] = set()
        fresh = sorted(_codes(row), key=lambda codes: codes[0] != self._levels)
        for levels, codes in fresh:
            if known and levels != self._levels:
                return
            for start in self._windows_at(codes, stride):
                there = self.view(view)[max(start, 0) : start + (len(row) - 1) * stride + 1 : stride]
                if start < 0 or start in known or len(there) < len(row):
                    continue
                if _unlike(row.astype(np.float64), there.astype(np.float64)) < _ALIKE["int8"]:
                    known.add(start)
                    self._levels = levels
                    yield start

    def _windows_at(self, codes: Numbers, stride: int) -> Iterator[int]:
        length = min(_WINDOW, len(codes))
        ends = np.linspace(0, len(codes) - length, num=min(3, len(codes) - length + 1)).astype(int)
        for first in sorted(set(ends.tolist())):
            wanted = codes[first : first + length].astype(np.int8).tobytes()
            for phase in range(stride):
                part = self._strided(stride)[phase]
                at, tried = part.find(wanted), 0
                while at >= 0 and tried < _MOST_TRIED:
                    yield (at - first) * stride + phase
                    at, tried = part.find(wanted, at + 1), tried + 1

    def _strided(self, stride: int) -> list[bytes]:
        if stride not in self._parts:
            self._parts[stride] = [self._content[phase::stride] for phase in range(stride)]
        return self._parts[stride]


def _codes(row: Numbers) -> list[tuple[float, Numbers]]:
    """Return the integers to which a channel may have been rounded, by size and sign of the largest one."""
    if row.dtype.kind in "iu":
        return [(1.0, row)]
    own: Reals = row.astype(np.float64)
    largest = float(np.max(np.abs(own)))
    return [
        (sign * most, np.clip(np.rint(own / largest * sign * most), -128, 127))
        for sign in (1, -1)
        for most in _MOST_LEVELS
    ]


def _unlike(one: Reals, two: Reals) -> float:
    with np.errstate(all="ignore"):
        both = float(np.sqrt(np.dot(one, one) * np.dot(two, two)))
        return 1 - abs(float(np.dot(one, two))) / both if 0 < both < np.inf else 1.0
