"""Early stopping says what MLPerf's LoadGen says of the same latencies."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.measuring.early_stopping import compute_early_stopping_estimate, compute_least_samples

stats = ImportedWhenUsed("scipy.stats")

PUBLISHED = {  # by percentile: for 0, 1, 2, 10 and 100 over-latency samples
    0.5: (7, 11, 14, 35, 237),
    0.9: (44, 64, 81, 197, 1_246),
    0.95: (90, 130, 165, 398, 2_504),
    0.99: (459, 662, 838, 2_010, 12_571),
    0.999: (4_603, 6_636, 8_403, 20_140, 125_826),
}


def run_loadgen(
    tmp_path: Path, scenario: str, queries: int, share: float, bound_ns: int = 0
) -> tuple[str, np.ndarray]:
    """Return LoadGen's summary, and the latencies that it was made from."""
    loadgen = pytest.importorskip(
        "mlperf_loadgen", reason="mlcommons-loadgen, the reference, is not installed"
    )
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, scenario)
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0
    settings.single_stream_expected_latency_ns = 10_000
    settings.single_stream_target_latency_percentile = settings.server_target_latency_percentile = (
        share
    )
    settings.server_target_qps, settings.server_target_latency_ns = 20_000, bound_ns
    random = np.random.default_rng(queries)

    def issue(samples):
        time.sleep(random.exponential(20e-6))
        loadgen.QuerySamplesComplete(
            [loadgen.QuerySampleResponse(sample.id, 0, 0) for sample in samples]
        )

    sut = loadgen.ConstructSUT(issue, lambda: None)
    library = loadgen.ConstructQSL(8, 8, lambda _: None, lambda _: None)
    logs = loadgen.LogSettings()
    logs.log_output.outdir, logs.enable_trace = str(tmp_path), True
    try:
        loadgen.StartTestWithLogSettings(sut, library, settings, logs)
    finally:
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(sut)
    # Not read as JSON, which the trace is only almost; the times count from when each sample was
    # scheduled.
    done = re.findall(r'"complete_ns":(\d+)', (tmp_path / "mlperf_log_trace.json").read_text())
    return (tmp_path / "mlperf_log_summary.txt").read_text(), np.array(done, np.int64)


def number(pattern: str, text: str) -> int:
    return int(re.search(pattern, text).group(1))


@pytest.mark.parametrize("share", PUBLISHED)
def test_the_least_numbers_of_samples_are_the_published_ones(share):
    assert (
        tuple(compute_least_samples(share, over) for over in (0, 1, 2, 10, 100)) == PUBLISHED[share]
    )


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("over", [0, 1, 7, 60])
def test_one_sample_fewer_would_not_do(share, over):
    needed = compute_least_samples(share, over)
    assert stats.binom.cdf(over, needed, 1 - share) <= 0.01
    assert stats.binom.cdf(over, needed - 1, 1 - share) > 0.01


def test_confidence_and_tolerance_count():
    assert (
        compute_least_samples(0.9, 1, confidence=0.95)
        < 64
        < compute_least_samples(0.9, 1, confidence=0.999)
    )
    assert compute_least_samples(0.9, 1, tolerance=0.02) < 64


@pytest.mark.parametrize(
    ("queries", "share"), [(64, 0.9), (333, 0.9), (700, 0.9), (130, 0.95), (1500, 0.8)]
)
def test_estimates_are_loadgens(tmp_path, queries, share):
    summary, latencies = run_loadgen(tmp_path, "SingleStream", queries, share)
    assert len(latencies) == queries
    found = compute_early_stopping_estimate(latencies, share)
    assert found.value == number(rf"{100 * share:.0f}\.?0*th percentile estimate: (\d+)", summary)
    assert found.discarded == number(r"discard (\d+) highest", summary)
    assert found.needed == number(r"Processed at least (\d+) queries", summary)
    tail = compute_early_stopping_estimate(latencies, 0.99)
    if tail.value is None:
        assert tail.needed == number(r"least (\d+) total queries", summary)
    else:
        assert tail.value == number(r"99\.?0*th percentile estimate: (\d+)", summary)


def test_too_few_samples_are_refused_as_loadgen_refuses_them(tmp_path):
    summary, latencies = run_loadgen(tmp_path, "SingleStream", 63, 0.9)
    found = compute_early_stopping_estimate(latencies, 0.9)
    assert found.value is None
    assert found.needed == number(r"process at least (\d+) queries", summary) == 64


@pytest.mark.parametrize("bound_ns", [1, 200_000, 10**10])
def test_missing_samples_are_as_many_as_loadgen_misses(tmp_path, bound_ns):
    summary, latencies = run_loadgen(tmp_path, "Server", 40, 0.9, bound_ns)
    missing = compute_least_samples(0.9, int(np.count_nonzero(latencies > bound_ns))) - 40
    assert max(0, missing) == number(r"at least (\d+) more queries", summary)


def test_the_estimate_is_rarely_below_the_truth():
    random = np.random.default_rng(5)
    truth = stats.lognorm(0.5).ppf(0.9)
    below = sum(
        compute_early_stopping_estimate(random.lognormal(0, 0.5, 400), 0.9).value < truth
        for _ in range(2000)
    )
    assert below <= 30  # at most 1 in 100; LoadGen's rule is one sample on the safe side


@pytest.mark.parametrize(
    "arguments", [(0.0, 1), (1.0, 1), (0.9, 1, 1.0), (0.9, 1, 0.99, 0.9), (0.9, -1)]
)
def test_what_has_no_meaning_is_refused(arguments):
    with pytest.raises(ValueError, match=r"between 0 and 1|over-latency"):
        compute_least_samples(*arguments)
