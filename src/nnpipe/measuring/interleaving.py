"""Running candidates side by side: start all of them, let them take turns, stop when the answer is there."""

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
from nnpipe.measuring.paired_comparison import ComparisonPlan, Medians, by_start, is_settled, verdicts

_FEWEST_ROUNDS, _MOST_ROUNDS = 8, 60
_FEWEST_CALLS, _MOST_CALLS = 3, 10_000
_LONGEST_BLOCK = 4  # times what a block of the fastest takes


@dataclass(frozen=True)
class Block:
    """What one candidate did when it was its turn.

    Attributes
    ----------
    start_ns, latency_ns
        (calls,) int64: when each call began, counted from the first, and how long it took.
    idle_cpu_ns, idle_ns
        How long its process had nothing to do since its last block, and how
        much processor time it took all the same.
    """

    start_ns: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.int64]
    idle_cpu_ns: int = 0
    idle_ns: int = 0


@dataclass(frozen=True)
class Turn:
    """A block, and when it was: numbers count from 0, ``place`` within the round, ``begin_ns`` from the beginning."""

    start: int
    round: int
    place: int
    candidate: int
    begin_ns: int
    block: Block


class Runner(Protocol):
    """A candidate that is alive."""

    def __call__(self, calls: int) -> Block:
        """Run so many calls one after the other; raise an :class:`NNPipeError` if the candidate cannot go on."""
        raise NotImplementedError


Opener = Callable[[Sequence[int]], AbstractContextManager[Mapping[int, Runner | NNPipeError]]]
"""Starts the candidates of these places anew, all at once; gives why for those that cannot be started."""


@dataclass
class Record:
    """What happened.

    Attributes
    ----------
    turns
        All blocks in order.
    failures
        Why candidates fell out, by place.
    seconds
        How long all took.
    interrupted
        Whether Ctrl-C ended it.
    """

    turns: list[Turn] = field(default_factory=list)
    failures: dict[int, NNPipeError] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    def medians(self, candidates: int) -> list[Medians]:
        """Return the median of each block, by candidate and start, in order of the rounds."""
        found: list[Medians] = []
        for candidate in range(candidates):
            turns = [turn for turn in self.turns if turn.candidate == candidate]
            numbers = [(turn.start, turn.round, float(np.median(turn.block.latency_ns))) for turn in turns]
            found.append(by_start(numbers))
        return found


def interleave(
    candidates: int,
    opener: Opener,
    plan: ComparisonPlan,
    *,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
) -> Record:
    """Compare candidates until each pair that matters is settled, time is up, or the last look is done.

    In each start all candidates that are left are opened anew, and take turns
    in blocks, in another random order each round, for about half as long as
    opening them took.  After some starts one looks (:meth:`ComparisonPlan.looks`): whoever is
    slower than another beyond doubt falls out.

    Parameters
    ----------
    candidates
        How many there are, at least two.
    opener
        Opens and closes them.  One that cannot be opened, or fails in a block,
        falls out for good, and costs the others nothing.
    plan
        When to stop, and how sure to be.
    progress
        Told of each start.
    clock
        Nanoseconds.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C came before anything was recorded; later it ends the
        comparison, and nothing of it is lost.
    """
    record, alive = Record(), list(range(candidates))
    order = random.Random(plan.seed)
    looks = plan.looks(candidates)
    calls: dict[int, int] = {}
    rounds, begin = 0, clock()
    try:
        for start in progress(range(looks[-1]), "comparing", looks[-1]):
            since = clock()
            order.shuffle(alive)  # who is opened first may have the better place in memory
            with opener(tuple(alive)) as opened:
                for place, failure in opened.items():
                    if isinstance(failure, NNPipeError):
                        record.failures[place] = failure
                runners = {place: runner for place, runner in opened.items() if not isinstance(runner, NNPipeError)}
                opening = clock() - since
                field = _Field(record, runners, start, begin, clock)
                field.warm_up(plan, calls)
                if not rounds:
                    rounds = min(max(opening // (2 * max(field.round_ns, 1)), _FEWEST_ROUNDS), _MOST_ROUNDS)
                for round_ in range(rounds):
                    turns = sorted(runners)
                    order.shuffle(turns)
                    field.run(round_, turns, calls)
            alive = [place for place in alive if place not in record.failures]
            if len(alive) > 1 and start + 1 in looks:
                alive = _left(alive, record.medians(candidates), plan)
            record.seconds = (clock() - begin) / 1e9
            if len(alive) < 2 or record.seconds + (clock() - since) / 1e9 > plan.max_seconds:
                break
    except KeyboardInterrupt:
        # Whoever stops this has seen no figure yet, so what there is may be judged like after any start.
        if not record.turns:
            raise
        record.interrupted = True
        record.seconds = (clock() - begin) / 1e9
    return record


def _left(alive: Sequence[int], medians: Sequence[Medians], plan: ComparisonPlan) -> list[int]:
    """Return who is still in question: nobody if all pairs are settled."""
    found = [each for each in verdicts(medians, plan) if each.first in alive and each.second in alive]
    lost = {each.second for each in found if each.kind == "faster" and is_settled(each, plan)}
    left = [place for place in alive if place not in lost]
    open_ = [each for each in found if not ({each.first, each.second} & lost or is_settled(each, plan))]
    return left if open_ else []


class _Field:
    """The candidates of one start."""

    def __init__(self, record: Record, runners: dict[int, Runner], start: int, begin: int, clock: Clock) -> None:
        self.round_ns = 0
        self._record, self._runners, self._start, self._begin, self._clock = record, runners, start, begin, clock

    def warm_up(self, plan: ComparisonPlan, calls: dict[int, int]) -> None:
        """Run each for a block that is not recorded; in the first start that tells how many calls a block has."""
        typical = {}
        for place in tuple(self._runners):
            if (warm := self._call(place, max(plan.warmup_runs, _FEWEST_CALLS))) is not None:
                typical[place] = max(float(np.median(warm.latency_ns)), 1.0)
        if not calls:
            calls |= _calls_in_blocks(typical, plan.block_seconds)
        since = self._clock()
        for place in tuple(self._runners):
            self._call(place, calls[place])
        self.round_ns = self._clock() - since

    def run(self, round_: int, turns: Iterable[int], calls: Mapping[int, int]) -> None:
        """Give each its turn, and record it."""
        for place_in_round, candidate in enumerate(turns):
            begin = self._clock() - self._begin
            if candidate in self._runners and (block := self._call(candidate, calls[candidate])) is not None:
                self._record.turns.append(Turn(self._start, round_, place_in_round, candidate, begin, block))

    def _call(self, place: int, calls: int) -> Block | None:
        try:
            return self._runners[place](calls)
        except NNPipeError as error:
            self._record.failures[place] = error
            del self._runners[place]
            return None


def _calls_in_blocks(typical_ns: Mapping[int, float], seconds: float) -> dict[int, int]:
    """Return the calls of each candidate in a block: as many as the fastest makes, unless they take it far longer.

    A quantile of few calls is another than that of many: what is to be told apart should have as many.
    """
    calls = seconds * 1e9 / min(typical_ns.values(), default=1.0)
    return {
        place: int(min(max(min(calls, _LONGEST_BLOCK * seconds * 1e9 / typical), _FEWEST_CALLS), _MOST_CALLS))
        for place, typical in typical_ns.items()
    }
