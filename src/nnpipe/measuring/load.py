"""Load scenarios: how queries are sent to a session, after MLPerf inference.

============== ============================================== ================================
scenario       the next query is sent                         its latency begins at
============== ============================================== ================================
single-stream  when the previous one has been answered        sending the query
multi-stream   likewise; a query has several samples          sending the query
server         when it is due: a Poisson process with a rate  the time it was *due*
offline        at once: all queries exist from the beginning  the previous answer
============== ============================================== ================================

A latency ends when the caller has the outputs, so it includes put, run and get.
(Without a load, ``benchmark`` times the run alone.)  One thread uses a session:
a query that is due while another is being answered waits, and the waiting time
is part of its latency.

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
"""One query: one batch, or several if the model takes fewer samples at a time."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A load scenario with its rate and seed.

    Parameters
    ----------
    scenario
        See the table above.
    rate
        Queries per second; for the server scenario only.
    seed
        The seed of the order of queries and of their arrivals.

    Raises
    ------
    ConfigError
        If the rate is missing in the server scenario, or given in another one.
    """

    scenario: Scenario = "single-stream"
    rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_call(Load, vars(self))
        if self.scenario not in get_args(Scenario):
            raise ConfigError(
                f"{self.scenario!r} is no load scenario; there are {', '.join(get_args(Scenario))}"
            )
        if self.scenario == "server" and not (self.rate and 0 < self.rate <= 1e9):
            raise ConfigError("the server scenario needs a rate of queries a second above 0")
        if self.scenario != "server" and self.rate is not None:
            raise ConfigError(
                f"a rate is for the server scenario; {self.scenario} goes as fast as it can"
            )


@dataclass(frozen=True, kw_only=True)
class Until:
    """The conditions that end a load; the first one that is reached counts.

    Parameters
    ----------
    seconds
        The time spent on queries.
    queries
        The number of queries.
    precision
        Half the width of the 95 % interval of the percentile ``share``, relative
        to that percentile; queries may depend on each other.  It is checked at
        counts that grow by a quarter each time, since frequent checks would make
        false stops more likely.  About one interval in twenty misses the true
        value, a few more if few queries were enough.
    share
        The percentile of ``precision``, 0.9 for p90.
    least
        The least number of queries before ``precision`` may end the load.

    Raises
    ------
    ConfigError
        If there is no condition, or one that cannot be reached.
    """

    seconds: float | None = None
    queries: int | None = None
    precision: float | None = None
    share: float = 0.9
    least: int = 100

    def __post_init__(self) -> None:
        check_call(Until, vars(self))
        given = [
            value for value in (self.seconds, self.queries, self.precision) if value is not None
        ]
        if not given:
            raise ConfigError(
                "a load needs an end: seconds, a number of queries, or the precision wanted"
            )
        if min(given) <= 0 or not all(map(math.isfinite, given)) or not 0 < self.share < 1:
            raise ConfigError(
                "seconds, queries and precision must be above 0, and a percentile between 0 and 1"
            )


@dataclass(frozen=True)
class LoadResult:
    """The result of a load.

    Parameters
    ----------
    series
        One row per query (per call in the offline scenario): ``start_ns``, when it was sent;
        ``latency_ns``; ``samples``; and, in the server scenario, ``scheduled_ns``, when it was due.
        Times count from the start.
    ended
        The condition that ended it: ``seconds``, ``queries`` or ``precision``.
    busy_ns
        The duration, without the time for which the schedule was paused.
    origin_ns
        The clock time of the start.
    unanswered
        The number of queries that were due before the end but had not been sent: the remaining
        queue.
    sampled
        The numbers of some queries, in the order of ``queries``, with their outputs, if these were
        asked for.
    """

    series: Series
    ended: str
    busy_ns: int
    origin_ns: int
    unanswered: int = 0
    sampled: tuple[tuple[int, Any], ...] = ()

    @property
    def rate(self) -> float:
        """Answered queries per second."""
        return len(self.series) / (self.busy_ns / 1e9) if self.busy_ns else math.nan

    @property
    def sample_rate(self) -> float:
        """Answered samples per second."""
        return (
            float(self.series["samples"].sum()) / (self.busy_ns / 1e9) if self.busy_ns else math.nan
        )
