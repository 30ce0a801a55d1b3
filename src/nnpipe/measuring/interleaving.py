"""Run candidates in turns: start all of them, alternate between them, and stop when the
comparison is decided.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import NNPipeError
from nnpipe.core.progress import Progress, silent
from nnpipe.measuring.loop import Clock
from nnpipe.measuring.paired_comparison import (
    ComparisonPlan,
    Medians,
    compare_all_pairs,
    index_by_start,
    is_settled,
)

_FEWEST_ROUNDS, _MOST_ROUNDS = 8, 60
_FEWEST_CALLS, _MOST_CALLS = 3, 10_000
_LONGEST_BLOCK = 4  # times the duration of a block of the fastest candidate


@dataclass(frozen=True)
class Block:
    """The calls of one candidate in one turn.

    Attributes
    ----------
    start_ns, latency_ns
        ``(calls,)`` int64: the start of each call, counted from the first, and its duration.
    idle_cpu_ns, idle_ns
        The processor time that the process used since its last block, while it
        was idle, and the duration of that idle time.
    parts_ns
        Parts of each call's time by name, ``(calls,)`` int64, -1 where a call has no such part.
    """

    start_ns: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.int64]
    idle_cpu_ns: int = 0
    idle_ns: int = 0
    parts_ns: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """A block with its position: start, round and place in the round count from 0, ``begin_ns``
    from the beginning.
    """

    start: int
    round: int
    place: int
    candidate: int
    begin_ns: int
    block: Block


class Runner(Protocol):
    """A candidate whose process is running."""

    def __call__(self, calls: int) -> Block:
        """Run ``calls`` calls one after the other; raise an :class:`NNPipeError` if the
        candidate fails.
        """
        raise NotImplementedError


Opener = Callable[[Sequence[int]], AbstractContextManager[Mapping[int, Runner | NNPipeError]]]
"""Starts the candidates with these numbers, all at once, and returns the reason for each that
cannot be started.
"""


@dataclass
class Record:
    """The record of a comparison.

    Attributes
    ----------
    turns
        All blocks in order.
    failures
        Why candidates failed, by number.
    seconds
        The total duration.
    interrupted
        Whether Ctrl-C ended it.
    """

    turns: list[Turn] = field(default_factory=list)
    failures: dict[int, NNPipeError] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    def compute_medians(self, candidates: int) -> list[Medians]:
        """Return the median of each block, by candidate and start, in order of the rounds."""
        found: list[Medians] = []
        for candidate in range(candidates):
            turns = [turn for turn in self.turns if turn.candidate == candidate]
            numbers = [
                (turn.start, turn.round, float(np.median(turn.block.latency_ns))) for turn in turns
            ]
            found.append(index_by_start(numbers))
        return found


def interleave(
    candidates: int,
    opener: Opener,
    plan: ComparisonPlan,
    *,
    same_calls: bool = False,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
) -> Record:
    """Compare candidates until all relevant pairs are decided, the time is over, or the last
    evaluation is done.

    In each start, all remaining candidates are opened anew.  They are run in blocks, in a new
    random order each round, for about half the time that opening them took.  After certain starts
    (:meth:`ComparisonPlan.list_evaluation_starts`), the results are evaluated, and candidates that
    are significantly slower than another drop out.

    Parameters
    ----------
    candidates
        The number of candidates, at least two.
    opener
        Opens and closes them.  A candidate that cannot be opened, or fails in a
        block, drops out; the others continue.
    plan
        When to stop, and with which confidence.
    same_calls
        Whether all candidates run equally many calls in a block, so that those who cycle through
        the same inputs are given the same ones in each round: for inputs that take unlike times.
    progress
        Receives each start.
    clock
        The clock, in nanoseconds.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C comes before anything has been recorded.  Later, Ctrl-C ends
        the comparison, and the record is returned.
    """
    record, alive = Record(), list(range(candidates))
    order = random.Random(plan.seed)
    looks = plan.list_evaluation_starts(candidates)
    calls: dict[int, int] = {}
    rounds, begin = 0, clock()
    try:
        for start in progress(range(looks[-1]), "comparing", looks[-1]):
            since = clock()
            order.shuffle(alive)  # the first one opened may have an advantage in memory
            with opener(tuple(alive)) as opened:
                for place, failure in opened.items():
                    if isinstance(failure, NNPipeError):
                        record.failures[place] = failure
                runners = {
                    place: runner
                    for place, runner in opened.items()
                    if not isinstance(runner, NNPipeError)
                }
                opening = clock() - since
                stage = _Field(record, runners, start, begin, clock)
                stage.warm_up(plan, calls, same_calls)
                if not rounds:
                    rounds = min(
                        max(opening // (2 * max(stage.round_ns, 1)), _FEWEST_ROUNDS), _MOST_ROUNDS
                    )
                for round_ in range(rounds):
                    turns = sorted(runners)
                    order.shuffle(turns)
                    stage.run(round_, turns, calls)
            alive = [place for place in alive if place not in record.failures]
            if len(alive) > 1 and start + 1 in looks:
                alive = _find_undecided(alive, record.compute_medians(candidates), plan)
            record.seconds = (clock() - begin) / 1e9
            if len(alive) < 2 or record.seconds + (clock() - since) / 1e9 > plan.max_seconds:
                break
    except KeyboardInterrupt:
        # A user who interrupts has not seen any result, so evaluating now introduces no bias.
        if not record.turns:
            raise
        record.interrupted = True
        record.seconds = (clock() - begin) / 1e9
    return record


def _find_undecided(
    alive: Sequence[int], medians: Sequence[Medians], plan: ComparisonPlan
) -> list[int]:
    """Return the candidates that are not yet decided; empty if all pairs are."""
    found = [
        each
        for each in compare_all_pairs(medians, plan)
        if each.first in alive and each.second in alive
    ]
    lost = {each.second for each in found if each.kind == "faster" and is_settled(each, plan)}
    left = [place for place in alive if place not in lost]
    open_ = [
        each for each in found if not ({each.first, each.second} & lost or is_settled(each, plan))
    ]
    return left if open_ else []


class _Field:
    """The candidates of one start."""

    def __init__(
        self, record: Record, runners: dict[int, Runner], start: int, begin: int, clock: Clock
    ) -> None:
        self.round_ns = 0
        self._record, self._runners, self._start, self._begin, self._clock = (
            record,
            runners,
            start,
            begin,
            clock,
        )

    def warm_up(self, plan: ComparisonPlan, calls: dict[int, int], same_calls: bool) -> None:
        """Run a block of each without recording it; the first start also determines the number
        of calls in a block.
        """
        typical = {}
        for place in tuple(self._runners):
            if (warm := self._call(place, max(plan.warmup_runs, _FEWEST_CALLS))) is not None:
                typical[place] = max(float(np.median(warm.latency_ns)), 1.0)
        if not calls:
            calls |= _compute_calls_in_blocks(typical, plan.block_seconds)
            if same_calls:
                calls |= dict.fromkeys(calls, min(calls.values(), default=_FEWEST_CALLS))
        since = self._clock()
        for place in tuple(self._runners):
            self._call(place, calls[place])
        self.round_ns = self._clock() - since

    def run(self, round_: int, turns: Iterable[int], calls: Mapping[int, int]) -> None:
        """Run a block of each candidate, and record it."""
        for place_in_round, candidate in enumerate(turns):
            begin = self._clock() - self._begin
            if (
                candidate in self._runners
                and (block := self._call(candidate, calls[candidate])) is not None
            ):
                self._record.turns.append(
                    Turn(self._start, round_, place_in_round, candidate, begin, block)
                )

    def _call(self, place: int, calls: int) -> Block | None:
        try:
            return self._runners[place](calls)
        except NNPipeError as error:
            self._record.failures[place] = error
            del self._runners[place]
            return None


def _compute_calls_in_blocks(typical_ns: Mapping[int, float], seconds: float) -> dict[int, int]:
    """Return the calls in a block of each candidate: those of the fastest, unless that would take
    far too long.

    The quantile of few calls is biased differently from that of many, so compared blocks should be
    equally long.
    """
    calls = seconds * 1e9 / min(typical_ns.values(), default=1.0)
    return {
        place: int(
            min(
                max(min(calls, _LONGEST_BLOCK * seconds * 1e9 / typical), _FEWEST_CALLS),
                _MOST_CALLS,
            )
        )
        for place, typical in typical_ns.items()
    }
