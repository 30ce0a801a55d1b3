"""The contract of tasks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.evaluation import NOT_FINITE, Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task, find_quality_metric, get_task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.session import assert_one_line

_ROUNDING = 1e-9


class TaskContract(ComponentContract):
    """What every task must do; subclass it and define four fixtures.

    ``task``
        The task.
    ``spec``
        The specification of a data set of this task.
    ``truth``
        The targets of at least eight samples, not all alike.
    ``predictions``
        What a mediocre model predicts for them: neither all right nor all wrong.
    """

    @pytest.fixture
    def task(self) -> Task:
        raise NotImplementedError("a subclass of TaskContract gives the fixture `task`")

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        raise NotImplementedError("a subclass of TaskContract gives the fixture `spec`")

    @pytest.fixture
    def truth(self) -> Batch:
        raise NotImplementedError("a subclass of TaskContract gives the fixture `truth`")

    @pytest.fixture
    def predictions(self) -> Batch:
        raise NotImplementedError("a subclass of TaskContract gives the fixture `predictions`")

    @pytest.fixture
    def component(self, task: Task) -> Component:
        return task

    @pytest.fixture
    def judged(self, task: Task, spec: DatasetSpec, truth: Batch, predictions: Batch) -> Evaluation:
        return task.finalize(task.evaluate(predictions, truth, spec))

    # -- what it says of itself -----------------------------------------------------------------

    def test_it_is_found_by_its_name(self, task: Task, spec: DatasetSpec) -> None:
        assert type(get_task(task.name)) is type(task)
        assert spec.task == task.name

    def test_its_metrics_have_names_of_their_own(self, task: Task) -> None:
        names = [metric.name for metric in task.metrics]
        assert names
        assert len(set(names)) == len(names)
        for metric in task.metrics:
            assert metric.heading, metric.name
            assert metric.title, metric.name
            assert metric.meaning, metric.name
            assert task.metric(metric.name) == metric
            # Another task may have a metric of this name, but it must mean the same kind of thing.
            known = find_quality_metric(metric.name)
            assert (known.kind, known.less_is_better) == (metric.kind, metric.less_is_better)

    # -- judging --------------------------------------------------------------------------------

    def test_an_evaluation_names_its_task_and_has_each_sample_once(
        self, task: Task, judged: Evaluation, truth: Batch
    ) -> None:
        assert judged.task == task.name
        assert len(judged) == len(next(iter(truth.values())))
        task.check(judged)
        assert json.loads(json.dumps(dict(judged.settings), allow_nan=False)) == dict(
            judged.settings
        )

    def test_batches_are_judged_as_all_samples_together(
        self, task: Task, spec: DatasetSpec, truth: Batch, predictions: Batch, judged: Evaluation
    ) -> None:
        half = len(judged) // 2
        parts = [
            task.evaluate(_slice_batch(predictions, place), _slice_batch(truth, place), spec)
            for place in (slice(None, half), slice(half, None))
        ]
        joined = task.finalize(Evaluation.concat(parts))
        assert task.same_samples(joined, judged)
        for metric in task.metrics:
            _assert_same(metric.compute(joined), metric.compute(judged), metric)

    def test_a_part_of_the_samples_is_not_the_same_as_all(
        self, task: Task, judged: Evaluation
    ) -> None:
        part = judged.take(np.arange(len(judged) // 2))
        assert not task.same_samples(part, judged)
        assert not task.same_samples(judged, part)

    def test_perfect_predictions_are_better(
        self, task: Task, spec: DatasetSpec, truth: Batch, judged: Evaluation
    ) -> None:
        best = task.finalize(task.evaluate(task.perfect(truth, spec), truth, spec))
        assert task.same_samples(best, judged)
        for metric in task.metrics:
            one, other = metric.compute(judged), metric.compute(best)
            if math.isnan(one) and math.isnan(other):
                continue  # not defined for these samples
            assert (other < one) if metric.less_is_better else (other > one), metric.name

    def test_predictions_of_the_wrong_shape_are_refused(
        self, task: Task, spec: DatasetSpec, truth: Batch
    ) -> None:
        wrong = {name: np.zeros((1, 3, 5, 7, 2), np.float32) for name in task.perfect(truth, spec)}
        with pytest.raises(NNPipeError) as caught:
            task.evaluate(wrong, truth, spec)
        assert_one_line(caught.value)

    def test_an_evaluation_that_lacks_an_array_is_refused(
        self, task: Task, judged: Evaluation
    ) -> None:
        for name in task.arrays:
            lacking = replace(
                judged,
                arrays={each: array for each, array in judged.arrays.items() if each != name},
                ragged={each: rows for each, rows in judged.ragged.items() if each != name},
            )
            with pytest.raises(ArtifactError, match=name) as caught:
                task.check(lacking)
            assert_one_line(caught.value)

    def test_an_array_that_holds_no_numbers_is_refused(
        self, task: Task, judged: Evaluation
    ) -> None:
        for name in task.arrays:
            words = np.full(len(judged), "x")
            if name in judged.ragged:
                rows = {**judged.ragged, name: Ragged(words, np.ones(len(judged), np.int64))}
                strange = replace(judged, ragged=rows)
            else:
                strange = replace(judged, arrays={**judged.arrays, name: words})
            with pytest.raises(ArtifactError, match=name) as caught:
                task.check(strange)
            assert_one_line(caught.value)

    # -- outputs that are no answers -----------------------------------------------------------

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, None])
    def test_what_is_not_finite_counts_as_the_worst_answer_and_is_counted(
        self, task: Task, spec: DatasetSpec, truth: Batch, judged: Evaluation, number: float | None
    ) -> None:
        perfect = task.perfect(truth, spec)
        best = task.finalize(task.evaluate(perfect, truth, spec))
        every, half = np.ones(len(judged), bool), np.arange(len(judged)) % 2 == 0
        for lost in (half, every):
            given = (
                {**perfect, NOT_FINITE: lost} if number is None else _with(number, perfect, lost)
            )
            found = task.finalize(task.evaluate(given, truth, spec))
            if number is not None and not task.without_answer(given, len(judged)).any():
                # predictions without real numbers, or a number to which the task gives a meaning
                continue
            np.testing.assert_array_equal(found.not_finite, lost)
            task.check(found)
            assert task.same_samples(found, judged)
            for metric in task.metrics:
                self._assert_worse(metric, best, found)
            same = task.agreement(found, found)
            assert same is None or not same[lost].any()

    def test_a_batch_with_and_one_without_such_outputs_are_joined(
        self, task: Task, spec: DatasetSpec, truth: Batch, predictions: Batch, judged: Evaluation
    ) -> None:
        half = np.arange(len(judged)) < len(judged) // 2
        lost = half & (np.arange(len(judged)) % 3 == 0)
        given = {**predictions, NOT_FINITE: lost}
        parts = [
            task.evaluate(
                {n: a[those] for n, a in given.items()},
                {n: a[those] for n, a in truth.items()},
                spec,
            )
            for those in (half, ~half)
        ]
        joined = task.finalize(Evaluation.concat(parts))
        np.testing.assert_array_equal(joined.not_finite, lost)
        whole = task.finalize(task.evaluate(given, truth, spec))
        for metric in task.metrics:
            assert metric.compute(joined) == pytest.approx(metric.compute(whole), nan_ok=True), (
                metric.name
            )

    def test_predictions_that_are_all_equal_or_empty_are_judged(
        self, task: Task, spec: DatasetSpec, truth: Batch, judged: Evaluation
    ) -> None:
        perfect = task.perfect(truth, spec)
        equal = {name: np.repeat(array[:1], len(judged), axis=0) for name, array in perfect.items()}
        found = task.finalize(task.evaluate(equal, truth, spec))
        assert not found.not_finite.any()
        for metric in task.metrics:
            assert not math.isinf(metric.compute(found)), metric.name
        nothing = task.finalize(
            task.evaluate(
                {n: a[:0] for n, a in perfect.items()}, {n: a[:0] for n, a in truth.items()}, spec
            )
        )
        assert len(nothing) == 0

    @staticmethod
    def _assert_worse(metric: QualityMetric, best: Evaluation, found: Evaluation) -> None:
        """Assert that a metric is worse than that of perfect predictions."""
        one, other = metric.compute(best), metric.compute(found)
        if math.isnan(one):
            return  # not defined for these samples
        assert not math.isnan(other), metric.name
        of_predictions = metric.kind not in ("time", "rate") and metric.name != "exact_match"
        if of_predictions:
            assert (other > one) if metric.less_is_better else (other < one), metric.name

    # -- metrics --------------------------------------------------------------------------------

    def test_a_weight_counts_a_sample_that_often(self, task: Task, judged: Evaluation) -> None:
        random = np.random.default_rng(0)
        for metric in task.metrics:
            statistic = metric.build_statistic(judged)
            for _ in range(5):
                chosen = _choose_samples(metric, judged, random)
                weights = np.bincount(chosen, minlength=len(judged)).astype(np.float64)
                _assert_same(statistic(weights), metric.compute(judged.take(chosen)), metric)

    def test_the_order_of_samples_does_not_matter(self, task: Task, judged: Evaluation) -> None:
        turned = judged.take(np.arange(len(judged))[::-1])
        for metric in task.metrics:
            # the samples of a cluster may have an order, as points of a series do
            if metric.clusters is None:
                _assert_same(metric.compute(turned), metric.compute(judged), metric)

    def test_a_model_agrees_with_itself(self, task: Task, judged: Evaluation) -> None:
        same = task.agreement(judged, judged)
        assert same is None or (same.shape == (len(judged),) and bool(same.all()))

    def test_doubts_are_clauses(self, task: Task, judged: Evaluation) -> None:
        for kind, reason in task.warnings(judged):
            assert kind
            assert reason
            assert not reason.endswith(".")


def _choose_samples(
    metric: QualityMetric, judged: Evaluation, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return random samples with repetitions, in order; or all samples of some clusters, which
    cannot be repeated.
    """
    if metric.clusters is None:
        return np.sort(random.integers(0, len(judged), len(judged)))
    _, clusters = np.unique(metric.clusters(judged), return_inverse=True)
    number = int(clusters.max()) + 1
    kept = random.permutation(number)[: max(1, number - 1)]
    return np.flatnonzero(np.isin(clusters, kept))


def _with(number: float, batch: Batch, lost: npt.NDArray[np.bool_]) -> Batch:
    """Return predictions in which the real numbers of some samples are another one."""
    found = {}
    for name, array in batch.items():
        changed = array.astype(np.float32) if array.dtype.kind == "f" else array.copy()
        if changed.dtype.kind == "f":
            changed[lost] = number
        found[name] = changed
    return found


def _slice_batch(batch: Batch, place: slice) -> Batch:
    return {name: array[place] for name, array in batch.items()}


def _assert_same(one: float, other: float, metric: QualityMetric) -> None:
    assert one == pytest.approx(other, rel=_ROUNDING, abs=_ROUNDING, nan_ok=True), metric.name
