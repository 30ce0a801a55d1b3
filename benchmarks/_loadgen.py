"""MLPerf's LoadGen from Python (``pip install mlcommons-loadgen``), as far as benchmarks set it
beside nnpipe.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

SCENARIOS = {
    "single-stream": "SingleStream",
    "multi-stream": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}


def installed() -> bool:
    """Return whether it is there."""
    try:
        import mlperf_loadgen  # noqa: F401
    except ImportError:
        return False
    return True


def drive(
    scenario: str,
    answer: Callable[[list[int]], object],
    samples: int,
    *,
    queries: int,
    rate: float = 1000.0,
    samples_per_query: int = 8,
    seed: int = 0,
) -> dict[str, float]:
    """Run LoadGen on a system under test that answers where it is asked, one query after another.

    Parameters
    ----------
    scenario
        As nnpipe names it.
    answer
        Takes the numbers of the samples of a query; they count as answered when it returns.
    samples
        How many there are.
    queries
        How many to ask; offline, how many samples.
    rate, samples_per_query, seed
        Of the server scenario, of multi stream, and of the schedule and the order.

    Returns
    -------
    dict
        ``p50``, ``p90``, ``p99`` in nanoseconds; ``rate`` and ``sample_rate``, queries and samples
        a second from the first sent to the last answered; ``between_ns``, the median from sending
        one to sending the next.
    """
    import mlperf_loadgen as lg

    stamps: list[int] = []
    answered = 0

    def issue(asked: Any) -> None:
        nonlocal answered
        stamps.append(perf_counter_ns())
        answer([sample.index for sample in asked])
        answered += len(asked)
        stamps.append(perf_counter_ns())
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in asked])

    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, SCENARIOS[scenario])
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = 0
    settings.min_query_count = settings.max_query_count = queries
    settings.server_target_qps = settings.offline_expected_qps = rate
    settings.server_target_latency_ns = 10**12
    settings.multi_stream_samples_per_query = samples_per_query
    settings.qsl_rng_seed = settings.sample_index_rng_seed = settings.schedule_rng_seed = seed
    if scenario == "offline":
        settings.min_query_count = settings.max_query_count = 1
        settings.performance_sample_count_override = samples
        settings.offline_expected_qps = queries
        settings.min_duration_ms = 1000  # asks for 1.1 times this many seconds' worth of samples
    with tempfile.TemporaryDirectory() as folder:
        log = lg.LogSettings()
        log.log_output.outdir = folder
        log.log_output.copy_summary_to_stdout = False
        log.enable_trace = False
        sut = lg.ConstructSUT(issue, lambda: None)
        qsl = lg.ConstructQSL(samples, samples, lambda _: None, lambda _: None)
        try:
            lg.StartTestWithLogSettings(sut, qsl, settings, log, "audit.config")
        finally:
            lg.DestroyQSL(qsl)
            lg.DestroySUT(sut)
        summary = Path(folder, "mlperf_log_summary.txt").read_text()
    found = {
        f"p{share}": float(match[1])
        for share in (50, 90, 99)
        if (
            match := re.search(
                rf"^{share}\.00 percentile latency \(ns\)\s*:\s*([\d.]+)", summary, re.M
            )
        )
    }
    found["rate"] = len(stamps) / 2 / ((stamps[-1] - stamps[0]) / 1e9)
    found["sample_rate"] = answered / ((stamps[-1] - stamps[0]) / 1e9)
    starts = stamps[::2]
    between = sorted(b - a for a, b in itertools.pairwise(starts))
    found["between_ns"] = float(between[len(between) // 2]) if between else 0.0
    return found
