"""Where in one block of memory (an arena) to put buffers that are not all needed at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nnpipe.analysis._arena_search import MOST_BUFFERS, searched
from nnpipe.analysis._arena_sections import Sections
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.external_tools import C


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
            raise ConfigError(f"a buffer of {self.size} bytes from step {self.lower} to {self.upper}")


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
        No arena can be smaller: the greatest sum of buffers at one step, or more where a search has proven it.
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

    Buffers are first put, in a few orders, at the lowest offset that is free.  If a smaller arena is conceivable, all
    placements are searched by a program in C, which is compiled where a C compiler is installed.  Without one, or when
    the time is up, the plan is the best that was found; ``ArenaPlan.least`` tells whether it is known to be the best.

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
    bound = sections.peak()
    offsets = min((sections.first_fit(order) for order in sections.orders()), key=sections.height)
    best = ArenaPlan(tuple(offsets), sections.height(offsets), bound)
    enough = max(bound, capacity or 0)
    if best.size > enough and seconds and len(filled) <= MOST_BUFFERS and C.find() is not None:
        best = _narrowed(sections, best, enough, alignment, seconds)
    places = dict(zip(filled, best.offsets, strict=True))
    return replace(best, offsets=tuple(places.get(number, 0) for number in range(len(buffers))))


def _narrowed(sections: Sections, best: ArenaPlan, enough: int, step: int, seconds: int) -> ArenaPlan:
    """Return a better plan, by trying capacities between the bound and the plan: first the bound, then the middle."""
    bound, size, offsets, low, tried = best.lower_bound, best.size, best.offsets, best.lower_bound, enough
    while size > enough and low < size and seconds >= 1:
        answer = searched(sections, tried, seconds)
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
