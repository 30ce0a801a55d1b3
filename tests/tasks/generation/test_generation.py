"""Times of tokens as metrics: what is planted is found, and intervals hold it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import compute_quality_difference, compute_quality_estimate
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.generation import (
    LOG_LIKELIHOOD,
    PROMPT_TOKENS,
    REFERENCE_TOKENS,
    REQUEST_NS,
    TOKEN_NS,
    TOKENS,
)
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.quantities import quality_of
from nnpipe.measuring.run import Run
from nnpipe.tasks.generation.metrics import create_quantile_statistic
from nnpipe.tasks.generation.task import Generation

MS = 1_000_000
SPEC = DatasetSpec(Generation.name, (), ())
Times = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def judged(
    times: Times, texts: list[str] | None = None, references: list[str] | None = None
) -> Evaluation:
    """Judge answers whose tokens came after these times, ``(n, tokens)`` nanoseconds; -1 for
    none.
    """
    count = len(times)
    truth = {
        "sample": np.arange(count),
        "answer": np.array(references or [""] * count, object),
    }
    predictions = {
        "text": np.array(texts or ["answer"] * count, object),
        TOKENS: np.where(times < 0, -1, 5),
        TOKEN_NS: times,
        REQUEST_NS: np.where(times < 0, 0, times).sum(axis=1),
        PROMPT_TOKENS: np.full(count, 12),
        REFERENCE_TOKENS: np.full(count, 4),
        LOG_LIKELIHOOD: np.full(count, -4 * np.log(3.0)),
    }
    return Generation().evaluate(predictions, truth, SPEC)


def noisy(rng: np.random.Generator, prompts: int = 100, tokens: int = 20) -> Times:
    return rng.gamma(4, 0.05 * MS, (prompts, tokens)).astype(np.int64)


def of(name: str, found: Evaluation) -> float:
    return Generation().metric(name).compute(found)


def test_a_planted_delay_is_the_difference_of_the_time_per_output_token() -> None:
    times = noisy(np.random.default_rng(0))
    slower = times + MS
    metric = Generation().metric("tpot_mean")
    found = compute_quality_difference(metric, judged(times), judged(slower))
    assert found.value == pytest.approx(1e-3, rel=1e-9)
    assert of("itl_median", judged(slower)) - of("itl_median", judged(times)) == pytest.approx(
        1e-3, rel=1e-6
    )


def test_a_stall_shows_in_the_p99_of_inter_token_latency_and_not_in_its_median() -> None:
    times = np.full((100, 51), MS, np.int64)
    stalled = times.copy()
    stalled[::2, 20] = 100 * MS  # one token in 50 of half of the answers: 1 % of all
    calm, paused = judged(times), judged(stalled)
    assert of("itl_p99", calm) == pytest.approx(1e-3)
    assert of("itl_p99", paused) > 10 * of("itl_p99", calm)
    assert of("itl_median", paused) == pytest.approx(1e-3)
    assert of("ttft_median", paused) == pytest.approx(1e-3)


def test_the_times_of_tokens_add_up() -> None:
    found = judged(noisy(np.random.default_rng(1)))
    total = found.ragged["token_ns"].values.sum() / 1e9
    assert of("request_mean", found) * len(found) == pytest.approx(total)
    assert of("output_throughput", found) == pytest.approx(2000 / total)
    assert not list(Generation().warnings(found))


def test_time_that_belongs_to_no_token_is_doubted() -> None:
    found = judged(np.full((10, 5), MS, np.int64))
    found.arrays["request_ns"][:] += MS // 4
    assert [kind for kind, _ in Generation().warnings(found)] == ["clock"]


def test_answers_of_different_length_and_none_at_all() -> None:
    found = judged(np.array([[4 * MS, MS, MS], [2 * MS, -1, -1], [-1, -1, -1]]))
    assert of("ttft_mean", found) == pytest.approx(3e-3)
    assert of("tpot_mean", found) == pytest.approx(1e-3)
    assert of("itl_mean", found) == pytest.approx(1e-3)
    assert any("no token" in reason for _, reason in Generation().warnings(found))


def test_percentiles_of_few_values_are_not_told() -> None:
    few = judged(noisy(np.random.default_rng(6), prompts=100))
    assert np.isnan(of("ttft_p99", few))
    assert of("itl_p99", few) > of("itl_p90", few) > 0


def test_exact_match_and_perplexity_count_references_only() -> None:
    found = judged(np.full((3, 2), MS, np.int64), ["yes ", "no", "no"], ["yes", "yes", ""])
    assert of("exact_match", found) == 0.5
    assert of("perplexity", found) == pytest.approx(3.0)


def test_medians_of_tokens_are_no_percentiles_of_calls() -> None:
    found = quality_of(Generation().metric("itl_median"))
    assert (found.percentile, found.unit, found.judged) == (None, "s", True)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_of_many_values_are_those_of_the_sample(share: float) -> None:
    values = np.random.default_rng(2).exponential(size=20_000)
    found = create_quantile_statistic(values, np.arange(20_000) % 50, 50, share)(np.ones(50))
    assert found == pytest.approx(np.quantile(values, share), rel=0.02)


def test_quantiles_with_weights_are_those_of_repeated_values() -> None:
    rng = np.random.default_rng(3)
    values, owners = rng.exponential(size=4000), np.sort(rng.integers(0, 40, 4000))
    statistic = create_quantile_statistic(values, owners, 40, 0.9)
    for weights in (rng.integers(0, 4, 40), np.eye(40)[7], 5 * np.ones(40)):
        times = weights[owners].astype(int)
        plain = create_quantile_statistic(
            np.repeat(values, times), np.zeros(times.sum(), int), 1, 0.9
        )
        assert statistic(weights.astype(float)) == pytest.approx(plain(np.ones(1)), rel=1e-9)
    assert np.isnan(statistic(np.zeros(40)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ttft_median", "tpot_median", "itl_p90", "itl_p99"])
def test_intervals_hold_the_truth_although_tokens_of_a_request_depend_on_each_other(
    name: str,
) -> None:
    def drawn(rng: np.random.Generator, prompts: int) -> Times:
        pace = rng.gamma(20, 0.05, (prompts, 1))  # of each request
        return np.maximum(1, rng.gamma(4, 0.25 * MS, (prompts, 40)) * pace).astype(np.int64)

    truth = of(name, judged(drawn(np.random.default_rng(4), 20_000)))
    assert _coverage(lambda rng: judged(drawn(rng, 200)), name, truth) >= 0.91


def _coverage(drawn: Callable[[np.random.Generator], Evaluation], name: str, truth: float) -> float:
    metric, held = Generation().metric(name), 0
    for seed in range(150):
        found = compute_quality_estimate(metric, drawn(np.random.default_rng(100 + seed)))
        held += found.low <= truth <= found.high
    return held / 150


@pytest.mark.slow
def test_ten_thousand_answers_of_a_hundred_tokens_are_a_small_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = judged(noisy(np.random.default_rng(5), 10_000, 100))
    path = tmp_path / "result.json"
    Run("many", (), {}, {}, {}, {}, {}, found).write(path)
    assert path.stat().st_size < 100e6
    read = Run.read(path).evaluation
    assert read is not None
    assert read.ragged["token_ns"].has_same_rows(found.ragged["token_ns"])
    assert of("itl_p99", read) == of("itl_p99", found)
