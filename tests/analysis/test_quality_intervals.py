"""The intervals of metrics and of paired differences hold the truth as often as they say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import (
    bootstrap_metrics,
    compare_accuracies,
    compute_mcnemar_p_value,
    compute_mean_interval,
    compute_quality_difference,
    compute_quality_estimate,
)
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.core.task import get_task, list_installed_tasks

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _paired_models import POPULATIONS, Pair, Population, anomalies, regressions
from _paired_pictures import of_confusions, segmentations
from interval_coverage import coverage, judged


@pytest.mark.slow
def test_few_differing_samples_are_not_taken_for_certainty() -> None:
    found = coverage(Population("regression", ("mae", "rmse"), regressions), 150)
    assert found["mae"]["difference"] >= 0.88
    assert found["rmse"]["difference"] >= 0.88


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("population", POPULATIONS, ids=lambda each: each.task)
def test_paired_intervals_of_every_task_hold_the_truth_as_often_as_they_say(
    population: Population,
) -> None:
    missed = [found for found in judged(population, 150) if not found["holds"]]
    assert missed == []


def test_every_task_is_simulated() -> None:
    simulated = {population.task.replace(",", "").split()[0] for population in POPULATIONS}
    ours = {task.name for task in list_installed_tasks(of_plugins=False)}
    assert ours == simulated


def test_the_mean_of_ordinary_values_has_students_interval() -> None:
    values = np.random.default_rng(0).normal(5, 2, 1000)
    low, high = compute_mean_interval(values, float(values.mean()))
    half = 1.9623 * values.std(ddof=1) / np.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=0.01)
    assert high == pytest.approx(values.mean() + half, abs=0.01)


def test_the_interval_turns_with_the_sign_of_the_values() -> None:
    values = np.random.default_rng(1).exponential(1, 60)
    low, high = compute_mean_interval(values, float(values.mean()))
    assert compute_mean_interval(-values, -float(values.mean())) == pytest.approx((-high, -low))
    assert high - values.mean() > values.mean() - low  # the long tail is above


def test_differences_are_uncertain_if_few_samples_carry_the_metric() -> None:
    """As where one sample in 25 has one of the few things of a class, and the models differ on a
    tenth of all.
    """
    random, truth, held = np.random.default_rng(6), -0.1, {True: 0, False: 0}
    for _ in range(400):
        carried = np.where(random.random(200) < 0.04, 20.0, 0.2 / 0.96) * random.exponential(1, 200)
        found = np.where(random.random(200) < 0.1, -carried, 0.0)
        for told in held:
            low, high = compute_mean_interval(
                found, float(found.mean()), beside=carried if told else None
            )
            held[told] += low <= truth <= high
    assert held[False] < 0.9 * 400
    assert held[True] >= 0.93 * 400


def test_two_models_that_never_differ_are_not_equal_for_certain() -> None:
    one, _ = regressions(np.random.default_rng(2), 50)
    found = compute_quality_difference(get_task("regression").metric("mae"), one, one)
    assert found.value == 0
    assert found.low < 0 < found.high
    assert found.high < 0.05


def test_a_perfect_metric_is_not_certain() -> None:
    one, _ = segmentations(np.random.default_rng(3), 40)
    confusions = one.ragged["pixels"].values[:, 2].reshape(-1, 3, 3)
    perfect = of_confusions(confusions * np.eye(3, dtype=np.int64))
    found = compute_quality_estimate(get_task("segmentation").metric("mean_iou"), perfect)
    assert found.value == found.high == 1
    assert 0.85 < found.low < 0.95


def test_shares_of_right_samples_are_compared_sample_by_sample() -> None:
    truth = np.zeros(100, np.int32)
    first, second = truth.copy(), truth.copy()
    first[:10] = 1  # wrong on ten, the second on four of these and on one more
    second[:4] = 2
    second[50] = 1
    names = ("a", "b", "c")
    pair = [
        Evaluation("classification", {"truth": truth, "predicted": each}, names)
        for each in (first, second)
    ]
    accuracy = get_task("classification").primary
    found = compute_quality_difference(accuracy, pair[0], pair[1], 0.9)
    assert (found.gained, found.lost, found.samples) == (6, 1, 100)
    assert (found.value, found.low, found.high) == compare_accuracies(6, 1, 100, 0.9)
    assert found.p_value == compute_mcnemar_p_value(6, 1)
    wider = compute_quality_difference(accuracy, pair[0], pair[1], 0.99)
    assert wider.low < found.low < found.high < wider.high


def test_a_model_with_many_kinds_of_mistakes_is_compared_with_one_with_few() -> None:
    random = np.random.default_rng(8)
    truth = random.integers(0, 25, 2000).astype(np.int32)
    pair = []
    for share in (0.02, 0.6):  # the second one confuses nearly all of the 600 pairs of classes
        predicted = np.where(
            random.random(2000) < share, random.integers(0, 25, 2000), truth
        ).astype(np.int32)
        arrays = {
            "truth": truth,
            "predicted": predicted,
            "rank": (predicted != truth).astype(np.int32),
        }
        pair.append(Evaluation("classification", arrays, tuple(map(str, range(25)))))
    found = compute_quality_difference(get_task("classification").metric("macro_f1"), *pair)
    assert -0.62 < found.low < found.value < found.high < -0.5


def test_no_interval_leaves_what_a_metric_can_be() -> None:
    truth = np.repeat([0, 1], [40, 6])
    score = np.concatenate([np.linspace(0, 0.6, 40), [0.55, 0.7, 0.8, 0.9, 0.95, 1.0]])
    found = compute_quality_estimate(
        get_task("anomaly").primary, Evaluation("anomaly", {"truth": truth, "score": score})
    )
    assert 0.85 < found.low < found.value < found.high == 1


def test_clusters_are_counted_and_not_their_samples() -> None:
    def errors(evaluation: Evaluation) -> np.ndarray:
        return np.asarray(evaluation.arrays["error"], np.float64)

    alone = QualityMetric("error", "Error", "Error", "the error", "ratio", True, values=errors)
    grouped = QualityMetric(
        "error",
        "Error",
        "Error",
        "the error",
        "ratio",
        True,
        values=errors,
        clusters=lambda found: found.arrays["group"],
    )
    error = np.repeat(np.random.default_rng(4).normal(size=30), 10)
    evaluation = Evaluation("any", {"error": error, "group": np.repeat(np.arange(30), 10)})
    one, other = (
        compute_quality_estimate(alone, evaluation),
        compute_quality_estimate(grouped, evaluation),
    )
    assert one.value == pytest.approx(other.value)
    assert (other.high - other.low) / (one.high - one.low) == pytest.approx(np.sqrt(10), rel=0.2)


def test_a_metric_is_computed_without_each_sample_only_once() -> None:
    calls: list[int] = []

    def counted(evaluation: Evaluation) -> Statistic:
        def statistic(weights: Floats) -> float:
            calls.append(1)
            return float(weights @ evaluation.arrays["error"])

        return statistic

    metric = QualityMetric(
        "error", "Error", "Error", "the error", "ratio", False, statistic=counted
    )
    evaluation = Evaluation("any", {"error": np.arange(20.0)})
    first = compute_quality_estimate(metric, evaluation)
    taken = len(calls)
    assert compute_quality_estimate(metric, evaluation) == first
    assert len(calls) == taken + 1  # the metric itself
    compute_quality_estimate(metric, Evaluation("any", {"error": np.arange(20.0)}))
    assert len(calls) == 2 * taken + 1


def test_draws_are_of_the_same_samples_for_all() -> None:
    pairs: Iterator[Pair] = (
        make(np.random.default_rng(5), 80) for make in (regressions, anomalies)
    )
    for one, other in pairs:
        metric = get_task(one.task).primary
        drawn = bootstrap_metrics(metric, (one, one, other), 100)
        np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
        assert np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1] > 0.5
