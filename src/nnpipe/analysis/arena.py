"""Where in one block of memory (an arena) to put buffers that are not all needed at the same
time.
"""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.discoverable import C
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.messages import format_one_line

ORDERS = ("WAT", "TAW", "TWA", "ATW")
"""Orders of buffers by T, the fullest section that one is in, A, its area, and W, how long it
lives.
"""


class Sections:
    """Lifetimes and sizes of buffers, in sections of time.

    A section in which no more buffers are alive than in one beside it says nothing new and is left
    out.

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
        # A section with most buffers ends where one begins to die: between a birth and the next
        # death.
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

    def compute_peak(self) -> int:
        """Return the greatest sum of the sizes of buffers that are alive at the same time."""
        return max(self._total)

    def height(self, offsets: Sequence[int]) -> int:
        """Return where the highest buffer ends."""
        return max((at + size for at, size in zip(offsets, self.size, strict=True)), default=0)

    def iter_orders(self) -> Iterator[list[int]]:
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

    def allocate_first_fit(self, order: Sequence[int]) -> list[int]:
        """Return offsets after placing the buffers in an order, each in the lowest gap that
        holds it.
        """
        # by section: placed from where to where
        held: list[list[tuple[int, int]]] = [[] for _ in range(self.count)]
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


SOURCE = Path(__file__).with_name("arena_search.c")
MOST_BUFFERS = 2000


@dataclass(frozen=True)
class Answer:
    """What a search found: offsets, or that there are none, or neither in its time, which is in
    seconds.
    """

    offsets: list[int] | None
    impossible: bool
    seconds: int


def search_offsets(sections: Sections, capacity: int, seconds: int) -> Answer:
    """Search for offsets with which all buffers lie below the capacity.

    Raises
    ------
    MissingTool
        If no C compiler is installed.
    """
    compiler = C.check("the search for the smallest arena")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "arena_search")
        built = subprocess.run(
            [compiler, "-O2", "-o", program, SOURCE], capture_output=True, text=True, check=False
        )
        if built.returncode:
            raise NNPipeError(
                f"{compiler} cannot compile {SOURCE.name}: {format_one_line(built.stderr, 200)}"
            )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        given = " ".join(map(str, _iter_program_input(sections, capacity, seconds)))
        done = subprocess.run(
            [program, *ORDERS], input=given, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise NNPipeError(f"the search for the smallest arena ended with status {done.returncode}")
    answer, *offsets = done.stdout.split()
    took = after.ru_utime - before.ru_utime
    return Answer(
        [int(at) for at in offsets] if answer == "fits" else None,
        answer == "impossible",
        int(took) + 1,
    )


def _iter_program_input(sections: Sections, capacity: int, seconds: int) -> Iterator[int]:
    """Yield what the program reads."""
    yield from (len(sections.size), sections.count, capacity, seconds)
    for one in zip(sections.first, sections.after, sections.size, sections.lengths, strict=True):
        yield from one


@dataclass(frozen=True)
class Buffer:
    """Memory that is needed for a time.

    Parameters
    ----------
    lower, upper
        The first step at which it is needed, and the step from which on it is not needed any more.
    size
        Its length in bytes.
    """

    lower: int
    upper: int
    size: int

    def __post_init__(self) -> None:
        check_call(Buffer, vars(self))
        if self.lower >= self.upper or self.size < 0:
            raise ConfigError(
                f"a buffer of {self.size} bytes from step {self.lower} to {self.upper}"
            )


@dataclass(frozen=True)
class ArenaPlan:
    """Where each buffer lies.

    Attributes
    ----------
    offsets
        The first byte of each buffer, in the order in which the buffers were given.
    size
        Bytes of the arena.
    lower_bound
        No arena can be smaller: the greatest sum of buffers at one step, or more where a search has
        proven it.
    """

    offsets: tuple[int, ...]
    size: int
    lower_bound: int

    @property
    def least(self) -> bool:
        """Whether no arena can be smaller."""
        return self.size <= self.lower_bound


def plan_arena(
    buffers: Sequence[Buffer], *, alignment: int = 1, capacity: int | None = None, seconds: int = 60
) -> ArenaPlan:
    """Return a plan of an arena that is as small as possible.

    Buffers are first put, in a few orders, at the lowest offset that is free.  If a smaller arena
    is conceivable, all placements are searched by a program in C, which is compiled where a C
    compiler is installed.  Without one, or when the time is up, the plan is the best that was
    found; ``ArenaPlan.least`` tells whether it is known to be the best.

    Parameters
    ----------
    buffers
        At most 2,000 are searched; of more, the first plan is returned.
    alignment
        Each offset is a multiple of it, in bytes.
    capacity
        An arena size in bytes that is small enough; without it, the least is searched.
    seconds
        Processor time for the search.

    Examples
    --------
    >>> plan = plan_arena([Buffer(0, 2, 64), Buffer(1, 3, 32), Buffer(2, 4, 64)])
    >>> plan.offsets, plan.size, plan.least
    ((0, 64, 0), 96, True)
    """
    check_call(plan_arena, locals())
    if alignment < 1 or seconds < 0:
        raise ConfigError("alignment should be 1 or more, and seconds 0 or more")
    filled = [number for number, buffer in enumerate(buffers) if buffer.size]
    sections = Sections(
        [(buffers[n].lower, buffers[n].upper) for n in filled],
        [-(-buffers[n].size // alignment) * alignment for n in filled],
    )
    bound = sections.compute_peak()
    offsets = min(
        (sections.allocate_first_fit(order) for order in sections.iter_orders()),
        key=sections.height,
    )
    best = ArenaPlan(tuple(offsets), sections.height(offsets), bound)
    enough = max(bound, capacity or 0)
    if best.size > enough and seconds and len(filled) <= MOST_BUFFERS and C.find() is not None:
        best = _search_smaller_plan(sections, best, enough, alignment, seconds)
    places = dict(zip(filled, best.offsets, strict=True))
    return replace(best, offsets=tuple(places.get(number, 0) for number in range(len(buffers))))


def _search_smaller_plan(
    sections: Sections, best: ArenaPlan, enough: int, step: int, seconds: int
) -> ArenaPlan:
    """Return a better plan, by trying capacities between the bound and the plan: first the
    bound, then the middle.
    """
    bound, size, offsets, low, tried = (
        best.lower_bound,
        best.size,
        best.offsets,
        best.lower_bound,
        enough,
    )
    while size > enough and low < size and seconds >= 1:
        answer = search_offsets(sections, tried, seconds)
        seconds -= answer.seconds
        if answer.offsets is not None:
            offsets, size = tuple(answer.offsets), sections.height(answer.offsets)
        else:
            low = tried + step
            bound = max(bound, low) if answer.impossible and bound >= tried else bound
        # Below `low` nothing was found; a middle that is a multiple of the step can be reached.
        tried = max(enough, low, (low + size) // 2 // step * step)
        tried = min(tried, size - step)
    return ArenaPlan(offsets, size, bound)
