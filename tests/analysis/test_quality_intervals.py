"""The intervals of metrics and of paired differences hold the truth as often as they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nnpipe.analysis.paired_shares import mcnemar, paired_difference
from nnpipe.analysis.quality_intervals import drawn_metrics, quality_difference, quality_estimate
from nnpipe.analysis.skewed_means import mean_interval
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.ragged import Ragged
from nnpipe.core.task import task_named

Pair = tuple[Evaluation, Evaluation]
SAMPLES = 200


def regressions(random: np.random.Generator, count: int) -> Pair:
    """Return two models whose predictions differ for a tenth of the samples."""
    truth = random.normal(size=(count, 1))
    one = truth + random.normal(0, 0.3, truth.shape)
    other = np.where(random.random(truth.shape) < 0.1, one + random.normal(0.2, 0.5, truth.shape), one)
    made = [{"truth": truth.astype(np.float32), "predicted": each.astype(np.float32)} for each in (one, other)]
    return Evaluation("regression", made[0]), Evaluation("regression", made[1])


def anomalies(random: np.random.Generator, count: int) -> Pair:
    """Return two models with many equal scores."""
    truth = (random.random(count) < 0.3).astype(np.int32)
    one = np.round(truth + random.normal(0, 1, count), 1)
    other = np.where(random.random(count) < 0.1, np.round(one + random.normal(0, 1, count), 1), one)
    made = [{"truth": truth, "score": each.astype(np.float32)} for each in (one, other)]
    return Evaluation("anomaly", made[0]), Evaluation("anomaly", made[1])


def segmentations(random: np.random.Generator, count: int) -> Pair:
    """Return two models of which the second loses pixels of the first class in a tenth of the images."""
    one = np.zeros((count, 3, 3), np.int64)
    for number in range(3):
        pixels = random.integers(5, 60, count)
        wrong = np.minimum(pixels, 5) * (random.random(count) < 0.3)
        one[:, number, number] += pixels - wrong
        one[:, number, (number + 1) % 3] += wrong
    other = one.copy()
    lost = np.minimum(other[:, 0, 0], 8) * (random.random(count) < 0.1)
    other[:, 0, 0] -= lost
    other[:, 0, 1] += lost
    return of_confusions(one), of_confusions(other)


def of_confusions(confusions: np.ndarray) -> Evaluation:
    """Return a segmentation with these pixels by true and predicted class, ``(n, 3, 3)``."""
    kinds = np.indices((3, 3)).reshape(2, 9).T
    pixels = [np.column_stack([kinds, each.reshape(-1)]) for each in confusions]
    contours = [np.array([[0, 1, 2]])] * len(confusions)
    rows = {"pixels": Ragged.of_rows(pixels), "contours": Ragged.of_rows(contours)}
    return Evaluation("segmentation", {}, ("a", "b", "c"), rows)


def classifications(random: np.random.Generator, count: int) -> Pair:
    """Return two models that differ for 6 % of the samples."""
    truth = random.integers(0, 5, count).astype(np.int32)
    one = np.where(random.random(count) < 0.2, random.integers(0, 5, count), truth).astype(np.int32)
    other = np.where(random.random(count) < 0.06, random.integers(0, 5, count), one).astype(np.int32)
    names = tuple("abcde")
    made = [{"truth": truth, "predicted": each} for each in (one, other)]
    return Evaluation("classification", made[0], names), Evaluation("classification", made[1], names)


def held(make: Callable[[np.random.Generator, int], Pair], metric: QualityMetric, times: int) -> float:
    """Return how often the interval of the difference holds the true one."""
    random = np.random.default_rng(11)
    many = [make(random, 100_000) for _ in range(4)]
    truth = np.mean([metric.of(other) - metric.of(one) for one, other in many])
    found = (quality_difference(metric, *make(random, SAMPLES)) for _ in range(times))
    return float(np.mean([each.low <= truth <= each.high for each in found]))


def test_few_differing_samples_are_not_taken_for_certainty() -> None:
    assert held(regressions, task_named("regression").metric("mae"), 150) >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "metric", "make", "least"),
    [
        ("regression", "mae", regressions, 0.925),
        ("regression", "rmse", regressions, 0.925),
        ("regression", "r2", regressions, 0.925),
        ("anomaly", "auc", anomalies, 0.925),
        ("anomaly", "best_f1", anomalies, 0.925),
        ("anomaly", "pauc", anomalies, 0.89),  # 14 samples decide it
        ("segmentation", "mean_iou", segmentations, 0.925),
        ("classification", "accuracy", classifications, 0.915),
        ("classification", "macro_f1", classifications, 0.925),
    ],
)
def test_a_thousand_paired_intervals_hold_the_truth_as_often_as_they_say(
    task: str, metric: str, make: Callable[[np.random.Generator, int], Pair], least: float
) -> None:
    assert least <= held(make, task_named(task).metric(metric), 1000) <= 0.995


def test_the_mean_of_ordinary_values_has_students_interval() -> None:
    values = np.random.default_rng(0).normal(5, 2, 1000)
    low, high = mean_interval(values, float(values.mean()))
    half = 1.9623 * values.std(ddof=1) / np.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=0.01)
    assert high == pytest.approx(values.mean() + half, abs=0.01)


def test_the_interval_turns_with_the_sign_of_the_values() -> None:
    values = np.random.default_rng(1).exponential(1, 60)
    low, high = mean_interval(values, float(values.mean()))
    assert mean_interval(-values, -float(values.mean())) == pytest.approx((-high, -low))
    assert high - values.mean() > values.mean() - low  # the long tail is above


def test_two_models_that_never_differ_are_not_equal_for_certain() -> None:
    one, _ = regressions(np.random.default_rng(2), 50)
    found = quality_difference(task_named("regression").metric("mae"), one, one)
    assert found.value == 0
    assert found.low < 0 < found.high
    assert found.high < 0.05


def test_a_perfect_metric_is_not_certain() -> None:
    one, _ = segmentations(np.random.default_rng(3), 40)
    confusions = one.ragged["pixels"].values[:, 2].reshape(-1, 3, 3)
    perfect = of_confusions(confusions * np.eye(3, dtype=np.int64))
    found = quality_estimate(task_named("segmentation").metric("mean_iou"), perfect)
    assert found.value == found.high == 1
    assert 0.85 < found.low < 0.95


def test_shares_of_right_samples_are_compared_sample_by_sample() -> None:
    truth = np.zeros(100, np.int32)
    first, second = truth.copy(), truth.copy()
    first[:10] = 1  # wrong on ten, the second on four of these and on one more
    second[:4] = 2
    second[50] = 1
    names = ("a", "b", "c")
    pair = [Evaluation("classification", {"truth": truth, "predicted": each}, names) for each in (first, second)]
    accuracy = task_named("classification").primary
    found = quality_difference(accuracy, pair[0], pair[1], 0.9)
    assert (found.gained, found.lost, found.samples) == (6, 1, 100)
    assert (found.value, found.low, found.high) == paired_difference(6, 1, 100, 0.9)
    assert found.p_value == mcnemar(6, 1)
    wider = quality_difference(accuracy, pair[0], pair[1], 0.99)
    assert wider.low < found.low < found.high < wider.high


def test_clusters_are_counted_and_not_their_samples() -> None:
    def errors(evaluation: Evaluation) -> np.ndarray:
        return np.asarray(evaluation.arrays["error"], np.float64)

    alone = QualityMetric("error", "Error", "Error", "the error", "ratio", True, values=errors)
    grouped = QualityMetric(
        "error", "Error", "Error", "the error", "ratio", True, values=errors,
        clusters=lambda found: found.arrays["group"],
    )  # fmt: skip
    error = np.repeat(np.random.default_rng(4).normal(size=30), 10)
    evaluation = Evaluation("any", {"error": error, "group": np.repeat(np.arange(30), 10)})
    one, other = quality_estimate(alone, evaluation), quality_estimate(grouped, evaluation)
    assert one.value == pytest.approx(other.value)
    assert (other.high - other.low) / (one.high - one.low) == pytest.approx(np.sqrt(10), rel=0.2)


def test_draws_are_of_the_same_samples_for_all() -> None:
    pairs: Iterator[Pair] = (make(np.random.default_rng(5), 80) for make in (regressions, anomalies))
    for one, other in pairs:
        metric = task_named(one.task).primary
        drawn = drawn_metrics(metric, (one, one, other), 100)
        np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
        assert np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1] > 0.5
