"""Options of load scenarios and audits, for the command line and pipeline files."""

from __future__ import annotations

from typing import Literal

from nnpipe.core.arguments import argument, list_arguments
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.load import Load, Until
from nnpipe.measuring.max_rate import LatencyBound

_SECONDS, _MOST_SECONDS = 10.0, 60.0
_MULTI_STREAM, _OFFLINE = 8, 64
# The percentile that MLPerf reports for each scenario; offline, it reports the throughput.
_PERCENTILES = {"single-stream": 90.0, "multi-stream": 99.0, "server": 99.0, "offline": 50.0}


class LoadOptions(Component):
    """Options of a load scenario, which replaces one inference after another, and of audits.

    Examples
    --------
    >>> LoadOptions(scenario="server", rate=100.0).rate
    100.0
    """

    scenario: Literal["single-stream", "multi-stream", "server", "offline"] | None = argument(
        None,
        flag="--load",
        help="measure under a load of MLPerf: each query after the answer to the one before (with "
        "several samples a query in multi-stream), queries that arrive at random at a rate, or all "
        "samples at once",
    )
    rate: float | None = argument(
        None, help="queries a second in the load server", minimum=1e-3, maximum=1e6
    )
    samples_per_query: int | None = argument(
        None,
        help="samples in one query; by default 1, in the load multi-stream 8, and offline as many "
        "as the model takes at once, or 64 if it takes any number",
        minimum=1,
        maximum=1 << 20,
    )
    load_seed: int = argument(0, help="seed of the queries' order and arrivals", minimum=0)
    load_seconds: float | None = argument(
        None,
        help=(
            "seconds after which a load ends; by default 10 if no other end is given, 60 if only a "
            "precision is given"
        ),
        minimum=0.001,
        maximum=86_400.0,
    )
    load_queries: int | None = argument(
        None, help="queries after which a load ends", minimum=1, maximum=10_000_000
    )
    load_precision: float | None = argument(
        None,
        help=(
            "end a load when half of the percentile's 95 % interval is at most this share of it, "
            "such as 0.02"
        ),
        minimum=1e-4,
        maximum=1.0,
    )
    load_percentile: float | None = argument(
        None,
        help="the percentile meant by the precision; by default as MLPerf: 90 of a single stream, "
        "99 of multi-stream and server, and 50 offline",
        minimum=0.1,
        maximum=99.99,
    )
    find_max_rate: bool = argument(
        False, help="search for the most queries a second that keep the bound of max-latency"
    )
    max_latency: str | None = argument(
        None,
        help=(
            "a bound on a percentile of latency, such as 10ms@p99; the report says whether it is "
            "kept"
        ),
    )
    audit: bool = argument(
        False,
        help="audit as MLPerf does: whether outputs under load equal those without it, and "
        "whether repeating a sample is not faster",
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if options contradict each other."""
        if self.wanted:
            self.load()
        if self.max_latency is not None:
            LatencyBound.parse(self.max_latency)
        if self.find_max_rate:
            if self.max_latency is None:
                raise ConfigError(
                    "to find the highest rate, say what it must keep: --max-latency 10ms@p99"
                )
            if self.scenario not in (None, "server") or self.rate is not None:
                raise ConfigError(
                    "the highest rate is found for the load 'server': leave --load and --rate out"
                )
        elif self.scenario is None:
            given = [
                a.flag for a in list_arguments(type(self)) if getattr(self, a.name) != a.default
            ]
            given = [flag for flag in given if flag != "--audit"]
            if given:
                raise ConfigError(f"{', '.join(given)} is for loads: name one with --load")

    @property
    def wanted(self) -> bool:
        """Whether the options ask for a load."""
        return self.scenario is not None or self.find_max_rate

    def load(self) -> Load:
        """Return the load scenario; single-stream for a search for the highest rate, or without
        a load.
        """
        if self.scenario is None or self.find_max_rate:
            return Load(seed=self.load_seed)
        return Load(scenario=self.scenario, rate=self.rate, seed=self.load_seed)

    def build_until(self) -> Until:
        """Return the conditions that end the load."""
        seconds = self.load_seconds
        if seconds is None and self.load_queries is None:
            seconds = _SECONDS if self.load_precision is None else _MOST_SECONDS
        percent = self.load_percentile or _PERCENTILES[self.scenario or "server"]
        return Until(
            seconds=seconds,
            queries=self.load_queries,
            precision=self.load_precision,
            share=percent / 100,
        )

    def get_latency_bound(self) -> LatencyBound | None:
        """Return the bound on latency, if there is one."""
        return None if self.max_latency is None else LatencyBound.parse(self.max_latency)

    def samples(self, fixed: int | None) -> int:
        """Return the number of samples in a query, for a model with this fixed batch size or, if
        None, a free one.
        """
        if self.samples_per_query is not None:
            return self.samples_per_query
        if self.scenario == "offline":
            return fixed or _OFFLINE
        return _MULTI_STREAM if self.scenario == "multi-stream" else 1


def call_size(options: LoadOptions, fixed: int | None, batch_size: int) -> int:
    """Return the number of samples in a call; a query of a load is one call, or several of the
    model's fixed size.
    """
    if not options.wanted:
        return batch_size
    size = fixed or options.samples(fixed)
    if batch_size not in (1, size):
        raise ConfigError(
            f"--inference-batch-size {batch_size} does not go with a load, which sends {size} "
            f"samples in a call: "
            "give --samples-per-query instead"
        )
    return size
