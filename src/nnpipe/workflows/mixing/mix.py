"""The fastest model in 8-bit integers and floats that is not worse than allowed, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
from nnpipe.core.progress import Progress
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.comparison.contest import Contest, carried_out
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.mixing import subprocess_tasks
from nnpipe.workflows.mixing._steps import MixingChain, MixingSteps
from nnpipe.workflows.mixing.float_search import fastest
from nnpipe.workflows.mixing.mix_result import FLOATS, MixResult
from nnpipe.workflows.progress import bar
from nnpipe.workflows.user_inputs.inputs import given, working_folder
from nnpipe.workflows.ways import Way, planned

_SHARE = 0.5  # of the allowed loss that the search may use
_FEWEST_APART = 50  # samples to search with that no quantiser has seen


def mix(
    model: Any,
    to: str | Path,
    *,
    data: Any,
    max_loss: float = 0.01,
    way: str | Way = "onnx-int8",
    metric: str = "",
    evaluations: int = 26,
    preparation: Mapping[str, Any] | None = None,
    calibration_samples: int = 128,
    search_samples: int = 1000,
    max_seconds: float = 60.0,
    time_limit: float = 3600.0,
    progress: Progress = bar,
) -> MixResult:
    """Quantise a model, and keep those tensors in floats without which it would be worse than allowed.

    The tensors are ranked by the noise that 8 bits add to them (:mod:`nnpipe.analysis.rounding_noise`).  The model is
    then compiled with the worst 0, 1, 2, 4, ... of them in floats, until it is good enough on validation or training
    samples, and tensors that are not needed are rounded again.  Of the models that are good enough, the
    fastest is chosen.  Finally it is compared with the model in floats and with the one in integers alone
    on the test split, which the search never sees.

    Parameters
    ----------
    model
        As in :func:`nnpipe.compare`.
    to
        The path of the chosen model.  Its description is written beside it.
    data
        As in :func:`nnpipe.compare`: samples with their classes, some of which are put aside to search with, or a
        :class:`~nnpipe.core.dataset.Dataset`.
    max_loss
        By how much the metric may be worse than that of the model in floats: 0.01 is one percentage point of accuracy.
        The search may use half of this, because the best of several models is partly the luckiest.
    way
        A short name of :func:`~nnpipe.workflows.ways.ways`, or a :class:`~nnpipe.workflows.ways.Way`, whose quantiser
        takes ``keep_float``.
    metric
        A metric of the task; by default the one by which candidates are ranked.
    evaluations
        The greatest number of models to try.
    preparation
        The preprocessing that the model expects, as options of its wrapper: ``{"scale": 255}``.
    calibration_samples
        Number of samples for the quantiser to observe.
    search_samples
        The greatest number of samples to search with.
    max_seconds
        The greatest time in seconds for which the chosen model, the one in floats and the one in integers take turns.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    progress
        Shows the progress.

    Returns
    -------
    MixResult
        The models that were tried, the chosen one, and how it does on the test split.

    Raises
    ------
    ConfigError
        If model, data and way do not fit together, or the way has no quantiser that keeps tensors in floats.
    NNPipeError
        If a step fails, or its process crashes or does not finish in time.

    Examples
    --------
    >>> import nnpipe
    >>> found = nnpipe.mix("model.onnx", "mixed.onnx", data=(images, labels), max_loss=0.02, max_seconds=1)
    >>> found.chosen.kept, found.path.name
    ((), 'mixed.onnx')
    """
    check_call(mix, locals())
    if not 0 <= max_loss < float("inf"):
        raise ConfigError(f"max_loss should be 0 or more, not {max_loss:g}")
    if evaluations < 1:
        raise ConfigError(f"evaluations should be 1 or more, not {evaluations}")
    check_writable(Path(to))
    with ExitStack() as stack:
        place = stack.enter_context(working_folder())
        taken = given(
            model, data, place, preparation=preparation,
            calibration_samples=calibration_samples + search_samples, progress=progress,
        )  # fmt: skip
        if taken.dataset is None:
            raise ConfigError("data should be samples with their classes, or a data set; there are none")
        dataset = prepared(taken.dataset)
        chain = MixingChain.of(planned(way, taken.models), way)
        mixing = MixingSteps(
            chain, dataset, _metric(dataset, metric), place, calibration_samples, time_limit,
            stack.enter_context(ModelProcess(chain.way.wrapper, dataset, chain.way.path)),
            stack.enter_context(Worker(f"{subprocess_tasks.__name__}:Trials", shown=True)),
        )  # fmt: skip
        mixing.check_destination(Path(to))
        samples = samples_apart(dataset, calibration_samples, search_samples)
        ranking, steps = mixing.searched(samples, max_loss * _SHARE, evaluations, progress)
        best = fastest(steps, max_loss * _SHARE)
        candidates = mixing.finalists(best, Path(to))
        contest = Contest([(each, None) for each in candidates], dataset, MeasureOptions(measure_seconds=0.0))
        found, interrupted = carried_out(
            contest, ComparisonPlan(max_seconds=max_seconds), title=f"Mixed precision of {_name(model)}",
            progress=progress,
        )  # fmt: skip
        files = {each.title: each.artifact.path for each in candidates if each.artifact is not None}
        comparison = ComparisonResult(found, files, FLOATS, interrupted)
        return MixResult(
            mixing.metric, max_loss, tuple(ranking), tuple(steps), best, len(samples), comparison,
            None if best is None else Path(to),
        )  # fmt: skip


def _metric(dataset: Dataset, name: str) -> QualityMetric:
    task = dataset.task
    if not name:
        return task.primary
    try:
        return task.metric(name)
    except KeyError:
        known = ", ".join(each.name for each in task.metrics)
        raise ConfigError(f"{name!r} is no metric of the task {task.name}; there are {known}") from None


def samples_apart(dataset: Dataset, calibration_samples: int, count: int) -> np.ndarray[Any, Any]:
    """Return samples to search with: of the validation split, or training samples that no quantiser has seen."""
    try:
        validation = dataset.split("validation")
    except NNPipeError:
        validation = np.array([], np.int64)
    train = np.random.default_rng(0).permutation(dataset.split("train"))  # as Dataset.calibration draws
    unseen = train[calibration_samples:]
    if len(validation) + len(unseen) < _FEWEST_APART:
        unseen = train
    found = np.concatenate([np.random.default_rng(0).permutation(validation), unseen])[:count]
    if not len(found):
        raise ConfigError("there are no validation or training samples to search with; leave some to these splits")
    return found.astype(np.int64)


def _name(model: Any) -> str:
    return Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
