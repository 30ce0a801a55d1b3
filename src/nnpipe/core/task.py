"""The interface of tasks: what a model is to do, and how well it does it."""

from __future__ import annotations

import contextlib
import functools
import importlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, ComponentNotFound, NotSupported
from nnpipe.core.evaluation import NOT_FINITE, Evaluation, find_nonfinite_samples
from nnpipe.core.messages import suggest_name
from nnpipe.core.quality_metric import Floats, QualityMetric
from nnpipe.core.tensors import Batch, DatasetSpec


class Task(Component):
    """What a model is to do with samples: it judges predictions, and names the metrics of quality.

    A data set states the name of its task, and everything that compares models finds the task by
    that name: intervals, paired comparisons, constraints of sweeps, gates, the run database and
    reports need nothing else.  Tasks are found like other components, in nnpipe, in plugins, and in
    the running program.

    Attributes
    ----------
    name
        The name of the task in specifications of data sets and in result files.
    arrays
        The arrays, ragged or not, without which the metrics cannot be computed.
    truth
        The arrays of an evaluation that hold the truth.  Two evaluations are of the same samples if
        they are equal in these.
    targets, optional_targets
        The names of the targets that a data set of the task must have, and of those that it may
        have.
    scores_classes
        Whether a model predicts one score for each class of the data set.

    Examples
    --------
    >>> class Apples(Task):
    ...     'How many apples are in a picture.'
    ...     name = "apples"
    ...     truth = ("count",)
    ...     @property
    ...     def metrics(self):
    ...         def error(found):
    ...             return np.abs(found.arrays["count"] - found.arrays["counted"]).astype(float)
    ...         return (
    ...             QualityMetric(
    ...                 "apples_error", "Error", "Error of the count", "mean distance from the true number of apples",
    ...                 kind="ratio", less_is_better=True, values=error,
    ...             ),
    ...         )
    ...     def _evaluate(self, predictions, truth, spec):
    ...         counted = np.rint(predictions["count"]).astype(np.int64)
    ...         return Evaluation(self.name, {"count": truth["count"], "counted": counted})
    >>> spec = DatasetSpec("apples", (), ())
    >>> found = Apples().evaluate({"count": np.array([1.9, 4.2])}, {"count": np.array([2, 5])}, spec)
    >>> Apples().primary.compute(found)
    0.5
    """

    name: ClassVar[str] = ""
    arrays: ClassVar[tuple[str, ...]] = ("truth", "predicted")
    truth: ClassVar[tuple[str, ...]] = ("truth",)
    targets: ClassVar[tuple[str, ...]] = ()
    optional_targets: ClassVar[tuple[str, ...]] = ()
    scores_classes: ClassVar[bool] = False

    @classmethod
    def short_name(cls) -> str:
        """Return the name of the task, by which data sets and files name the class."""
        return cls.name or cls.__name__

    @property
    @abstractmethod
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The metrics, the one by which candidates are ranked first."""

    @property
    def primary(self) -> QualityMetric:
        """The metric by which candidates are ranked."""
        return self.metrics[0]

    @property
    def compared(self) -> tuple[QualityMetric, ...]:
        """The metrics that comparisons show, that by which candidates are ranked first; by
        default only this one.
        """
        return (self.primary,)

    def evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Reduce the predictions and truth of a batch to the arrays that the metrics need.

        Samples with NaN or infinity in their predictions are judged by :meth:`worst`, and marked in
        :attr:`~nnpipe.core.evaluation.Evaluation.not_finite`.

        Parameters
        ----------
        predictions
            Arrays by name, as the wrapper's and the data set's postprocessing return them; ``(n,
            ...)``.
        truth
            The targets of the same samples, as in ``spec``.
        spec
            The specification of the data set.

        Raises
        ------
        SpecMismatch
            If the predictions have a wrong shape or element type; the message says which they
            should have.
        """
        lost = self.without_answer(predictions, len(next(iter(truth.values()), ())))
        given = {name: array for name, array in predictions.items() if name != NOT_FINITE}
        if not lost.any():
            return self._evaluate(given, truth, spec)
        filled = {name: _replace_with_zeros(array, lost) for name, array in given.items()}
        judged = self._evaluate(filled, truth, spec)
        those = {name: array[lost] for name, array in truth.items()}
        worst = self._evaluate(
            self.worst({name: array[lost] for name, array in filled.items()}, those, spec),
            those,
            spec,
        )
        place = np.arange(len(lost))
        place[lost] = len(lost) + np.arange(int(lost.sum()))
        return Evaluation.concat([judged, worst]).take(place).mark_not_finite(lost)

    @abstractmethod
    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Judge predictions that are all finite; arguments, result and errors are those of
        :meth:`evaluate`.
        """

    def without_answer(self, predictions: Batch, samples: int) -> npt.NDArray[np.bool_]:
        """Return for which samples a model's predictions are no answer, ``(samples,)``: those that
        are not finite.

        A task may except numbers that have a meaning, such as the logarithm of a probability 0.
        """
        return find_nonfinite_samples(predictions, samples)

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return predictions that are as wrong as can be, for samples whose outputs are not finite.

        By default any: where all metrics are means of values, each such sample has the worst value.

        Parameters
        ----------
        predictions
            Those of the model, with zeros in place of all numbers, which tell their shapes.
        truth, spec
            As in :meth:`evaluate`.

        Raises
        ------
        NotSupported
            If a task with other metrics does not say.
        """
        if all(metric.values is not None for metric in self.metrics):
            return predictions
        raise NotSupported(
            f"{len(next(iter(truth.values()), ())):,} samples have outputs that are NaN or "
            f"infinite, and the task {self.name!r} does not say which answer is the worst; give it "
            f"a method `worst`"
        )

    def keeping_all(self) -> Task:
        """Return the task with arguments such that :meth:`evaluate` keeps all that any metric
        needs; by default itself.
        """
        return self

    def finalize(self, judged: Evaluation) -> Evaluation:
        """Return the evaluation of all samples, given what :meth:`evaluate` returned for their
        batches, joined.
        """
        return self._finalize(judged).mark_not_finite(judged.not_finite)

    def _finalize(self, judged: Evaluation) -> Evaluation:
        """Return the evaluation of all samples; by default, it is unchanged.

        A task whose metrics compare samples with each other, such as a search, may keep predictions
        in :meth:`_evaluate` and replace them here by figures of single samples.
        """
        return judged

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return predictions that agree with the truth completely, for tests of data sets.

        Raises
        ------
        NotSupported
            If a task does not say.
        """
        raise NotSupported(f"the task {self.name!r} does not say which predictions are perfect")

    def check(self, evaluation: Evaluation) -> None:
        """Check the arrays of an evaluation that was read from a file; by default, that all are
        there and hold numbers.

        Raises
        ------
        ArtifactError
            If the metrics cannot be computed from them.
        """
        marks = evaluation.arrays.get(NOT_FINITE)
        if marks is not None and (marks.ndim != 1 or marks.dtype != np.bool_):
            raise ArtifactError(
                f"the evaluation's {NOT_FINITE!r} should be a truth value of each sample"
            )
        for name in self.arrays:
            rows = evaluation.ragged.get(name)
            array = evaluation.arrays.get(name) if rows is None else rows.values
            if array is None:
                raise ArtifactError(f"the evaluation has no array {name!r}; measure again")
            if array.dtype.kind not in "biuf":
                raise ArtifactError(
                    f"the evaluation's {name!r} should hold numbers, not {array.dtype}; measure "
                    f"again"
                )

    def has_same_settings(self, one: Evaluation, other: Evaluation) -> bool:
        """Return whether metrics of two evaluations can be compared: by default, if their settings
        are equal.

        How outputs are decoded is part of each model, and may differ.
        """
        first, second = ({**each.settings, "decoder": None} for each in (one, other))
        return first == second

    def unlike_work(self, one: Evaluation, other: Evaluation) -> str:
        """Return why the calls of two models are not the same work; empty, as by default, if
        their times compare.
        """
        return ""

    def same_samples(self, one: Evaluation, other: Evaluation) -> bool:
        """Return whether two evaluations are of the same samples in the same order, judged by
        their truth.
        """
        return len(one) == len(other) and one.has_same_arrays(other, self.truth)

    def agreement(self, one: Evaluation, other: Evaluation) -> npt.NDArray[np.bool_] | None:
        """Return for which samples two models predict the same, ``(samples,)``; ``None`` if a task
        cannot say.

        Models whose outputs are not finite predict nothing, so they do not agree.
        """
        same = self._compute_agreement(one, other)
        if same is None:
            return None
        agreed: npt.NDArray[np.bool_] = same & ~(one.not_finite | other.not_finite)
        return agreed

    def _compute_agreement(
        self, one: Evaluation, other: Evaluation
    ) -> npt.NDArray[np.bool_] | None:
        """Return for which samples two evaluations hold the same predictions; by default, a task
        cannot say.
        """
        return None

    def sample_errors(self, evaluation: Evaluation) -> Floats | None:
        """Return how wrong a model is about each sample, ``(samples,)``; ``None`` if a task cannot
        say.

        Reports show the samples with the greatest numbers above 0; NaN is for samples that do not
        count.  By default, it is the first metric that is a mean of values of samples; where
        greater values are better, what is missing to 1.
        """
        for metric in self.metrics:
            if metric.values is not None:
                values = metric.sample_values(evaluation)
                return values if metric.less_is_better else 1 - values
        return None

    def describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return a few words about what a model said about a sample, for the caption of its
        picture.
        """
        lost = evaluation.not_finite[number]
        return "the outputs are not finite" if lost else self._describe_sample(evaluation, number)

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return such words about a finite answer; by default none."""
        return ""

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Yield reasons to doubt the predictions: a kind of
        :mod:`nnpipe.measuring.validity_warning`, and a clause."""
        return iter(())

    def metric(self, name: str) -> QualityMetric:
        """Return a metric of this task by its name.

        Raises
        ------
        KeyError
            If there is none.
        """
        for found in self.metrics:
            if found.name == name:
                return found
        raise KeyError(name)


def _replace_with_zeros(array: npt.NDArray[Any], lost: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return predictions with zeros in place of all real numbers of some samples."""
    if array.dtype.kind not in "f" or not array.ndim or len(array) != len(lost):
        return array
    found: npt.NDArray[Any] = array.copy()
    found[lost] = 0
    return found


def get_task(name: str) -> Task:
    """Return the task with this name.

    Raises
    ------
    ComponentNotFound
        If there is none here; the message names the nearest.
    """
    from nnpipe.core.registry import map_names_to_classes

    check_call(get_task, {"name": name})
    if (ours := _find_own_task(name)) is not None:
        return ours()
    known = {cls.name: cls for cls in map_names_to_classes(Task).values()}
    if name not in known:
        raise ComponentNotFound(
            f"there is no task {name!r} "
            f"here{suggest_name(name, known) or '; there are: ' + ', '.join(sorted(known))}"
        )
    return known[name]()


@functools.cache
def _find_own_task(name: str) -> type[Task] | None:
    """Return nnpipe's own task of a name, which is in the folder of that name, without a look at
    all others.
    """
    if not name.isidentifier():
        return None
    try:
        module = importlib.import_module(f"nnpipe.tasks.{name}.task")
    except ModuleNotFoundError:
        return None
    return next(
        (cls for cls in vars(module).values() if isinstance(cls, type) and _is_named(cls, name)),
        None,
    )


def _is_named(cls: type, name: str) -> bool:
    return issubclass(cls, Task) and cls.name == name and not cls.is_base()


def has_class_scores(name: str) -> bool:
    """Return whether models for a task predict one score for each class; false for a task that
    is not known here.
    """
    try:
        return get_task(name).scores_classes
    except ComponentNotFound:
        return False


def find_task(evaluation: Evaluation) -> Task | None:
    """Return the task of an evaluation; ``None`` if it is not known here, or nothing can be
    computed.
    """
    if not len(evaluation):
        return None
    try:
        task = get_task(evaluation.task)
        task.check(evaluation)
    except (ComponentNotFound, ArtifactError):
        return None
    return task


def find_quality_metric(name: str) -> QualityMetric:
    """Return the quality metric with this name, of whichever task has it.

    Raises
    ------
    KeyError
        If no task that is known here has such a metric.
    """
    for task in list_tasks():
        with contextlib.suppress(KeyError):
            return task.metric(name)
    raise KeyError(name)


def list_tasks() -> tuple[Task, ...]:
    """Return every task that is known here, in the order of their names."""
    from nnpipe.core.registry import map_names_to_classes

    return tuple(
        cls() for cls in sorted(map_names_to_classes(Task).values(), key=lambda cls: cls.name)
    )


def list_installed_tasks(of_plugins: bool = True) -> tuple[Task, ...]:
    """Return the tasks of nnpipe, and optionally those of plugins, without those that the
    program itself declares.
    """
    from nnpipe.core.registry import components

    found = [cls for cls in components(Task) if of_plugins or cls.__module__.startswith("nnpipe.")]
    return tuple(cls() for cls in sorted(found, key=lambda cls: cls.name))
