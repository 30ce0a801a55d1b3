"""Load scenarios: how queries come to a session, after MLPerf inference.

============== ============================================== ================================
scenario       the next query comes                           a latency lasts from
============== ============================================== ================================
single-stream  when the one before has been answered          sending the query
multi-stream   likewise; a query has several samples          sending the query
server         when it is due: a Poisson process at a rate    the moment it was *due*
offline        at once, they are all there from the beginning the answer before
============== ============================================== ================================

A latency ends when the outputs are in the hands of whoever asked: put, run
and get are all within.  (What ``benchmark`` times without a load is the run
alone.)  One thread uses a session, so that a query that comes while another
is being answered waits, and its waiting counts.

Source: V. J. Reddi et al., "MLPerf Inference Benchmark", ISCA 2020, section
III, and the rules of mlcommons/inference_policies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import Batch
from nnpipe.measuring.series import Series

if TYPE_CHECKING:
    pass

Scenario = Literal["single-stream", "multi-stream", "server", "offline"]

Query = Sequence[Batch]
"""What is asked at once: one batch, or several where the model takes fewer samples at a time."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """How queries come.

    Parameters
    ----------
    scenario
        See the table above.
    rate
        Queries a second, of the server scenario alone.
    seed
        Of the order of queries and of their arrivals.

    Raises
    ------
    ConfigError
        If the rate is missing, or is there and should not be.
    """

    scenario: Scenario = "single-stream"
    rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_call(Load, vars(self))
        if self.scenario not in get_args(Scenario):
            raise ConfigError(f"{self.scenario!r} is no load scenario; there are {', '.join(get_args(Scenario))}")
        if self.scenario == "server" and not (self.rate and 0 < self.rate <= 1e9):
            raise ConfigError("the server scenario needs a rate of queries a second above 0")
        if self.scenario != "server" and self.rate is not None:
            raise ConfigError(f"a rate is for the server scenario; {self.scenario} goes as fast as it can")


@dataclass(frozen=True, kw_only=True)
class Until:
    """When a load ends: at whichever of these comes first.

    Parameters
    ----------
    seconds
        Time spent on queries.
    queries
        Their number.
    precision
        Half the width of the 95 % interval of the percentile ``share``, as a
        part of that percentile; queries may depend on each other.  Looked at less and less often, at counts that
        grow by a quarter, since who looks often enough finds what he wants.
        One interval in twenty misses the truth as ever, a few more where few
        queries were enough.
    share
        The percentile meant, 0.9 for p90.
    least
        Queries before ``precision`` may end it.

    Raises
    ------
    ConfigError
        If there is no end, or none that can be reached.
    """

    seconds: float | None = None
    queries: int | None = None
    precision: float | None = None
    share: float = 0.9
    least: int = 100

    def __post_init__(self) -> None:
        check_call(Until, vars(self))
        given = [value for value in (self.seconds, self.queries, self.precision) if value is not None]
        if not given:
            raise ConfigError("a load needs an end: seconds, a number of queries, or the precision wanted")
        if min(given) <= 0 or not all(map(math.isfinite, given)) or not 0 < self.share < 1:
            raise ConfigError("seconds, queries and precision must be above 0, and a percentile between 0 and 1")


@dataclass(frozen=True)
class LoadResult:
    """What a load gave.

    Parameters
    ----------
    series
        One row a query (a call in the offline scenario): ``start_ns``, when it was sent; ``latency_ns`` and
        ``samples``; and in the server scenario ``scheduled_ns``, when it was due.  Times count from the start.
    ended
        What ended it: ``seconds``, ``queries`` or ``precision``.
    busy_ns
        How long it lasted, less the time for which the schedule stood still.
    origin_ns
        The start, on the clock.
    unanswered
        Queries that were due before the end and had not been sent: the queue that was left.
    sampled
        Numbers of some queries, in the order given, with what the session gave for them, if that was asked for.
    """

    series: Series
    ended: str
    busy_ns: int
    origin_ns: int
    unanswered: int = 0
    sampled: tuple[tuple[int, Any], ...] = ()

    @property
    def rate(self) -> float:
        """Queries answered in a second."""
        return len(self.series) / (self.busy_ns / 1e9) if self.busy_ns else math.nan

    @property
    def sample_rate(self) -> float:
        """Samples answered in a second."""
        return float(self.series["samples"].sum()) / (self.busy_ns / 1e9) if self.busy_ns else math.nan
