"""Buffers over time, cut into sections during which the same buffers are alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

ORDERS = ("WAT", "TAW", "TWA", "ATW")
"""Orders of buffers by T, the fullest section that one is in, A, its area, and W, how long it lives."""


class Sections:
    """Lifetimes and sizes of buffers, in sections of time.

    A section in which no more buffers are alive than in one beside it says nothing new and is left out.

    Attributes
    ----------
    first, after, size
        Of each buffer the first section, the one after the last, and the size.
    lengths
        Of each buffer, how long it lives.
    count
        The number of sections.
    """

    def __init__(self, lifetimes: Sequence[tuple[int, int]], size: Sequence[int]) -> None:
        self.size = list(size)
        self.lengths = [upper - lower for lower, upper in lifetimes]
        begins = sorted({lower for lower, _ in lifetimes})
        ends = sorted({upper for _, upper in lifetimes})
        # A section with most buffers ends where one begins to die: between a birth and the next death.
        moments, death = [], 0
        for number, begin in enumerate(begins):
            while death < len(ends) and ends[death] <= begin:
                death += 1
            if number + 1 == len(begins) or begins[number + 1] >= ends[death]:
                moments.append(begin)
        self.count = len(moments)
        self.first = [int(n) for n in np.searchsorted(moments, [lower for lower, _ in lifetimes])]
        self.after = [int(n) for n in np.searchsorted(moments, [upper for _, upper in lifetimes])]
        self._total = [0] * (self.count + 1)
        for first, after, each in zip(self.first, self.after, self.size, strict=True):
            for section in range(first, after):
                self._total[section] += each

    def peak(self) -> int:
        """Return the greatest sum of the sizes of buffers that are alive at the same time."""
        return max(self._total)

    def height(self, offsets: Sequence[int]) -> int:
        """Return where the highest buffer ends."""
        return max((at + size for at, size in zip(offsets, self.size, strict=True)), default=0)

    def orders(self) -> Iterator[list[int]]:
        """Yield some orders of the buffers in which they may be placed."""
        weights = {
            "T": [max(self._total[a:b]) for a, b in zip(self.first, self.after, strict=True)],
            "A": [length * size for length, size in zip(self.lengths, self.size, strict=True)],
            "W": self.lengths,
        }
        for order in ORDERS:
            keys = list(zip(*(weights[letter] for letter in order), strict=True))
            yield sorted(range(len(self.size)), key=keys.__getitem__, reverse=True)
        yield sorted(range(len(self.size)), key=self.size.__getitem__, reverse=True)

    def first_fit(self, order: Sequence[int]) -> list[int]:
        """Return offsets after placing the buffers in an order, each in the lowest gap that holds it."""
        held: list[list[tuple[int, int]]] = [[] for _ in range(self.count)]  # by section: placed from where to where
        offsets = [0] * len(self.size)
        for number in order:
            span = range(self.first[number], self.after[number])
            at = 0
            for begin, end in sorted({piece for section in span for piece in held[section]}):
                if begin >= at + self.size[number]:
                    break
                at = max(at, end)
            offsets[number] = at
            for section in span:
                held[section].append((at, at + self.size[number]))
        return offsets
