"""The fastest model in 8-bit integers and floats that is not worse than allowed, in one call."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
from nnpipe.core.plan import Plan
from nnpipe.core.progress import Progress
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix, prepare_dataset
from nnpipe.workflows.comparison.contest import Contest, run_comparison
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.mixing import subprocess_tasks
from nnpipe.workflows.mixing.float_search import MixStep, find_fastest, search_floats
from nnpipe.workflows.mixing.mix_result import FLOATS, INTEGERS, MIXED, MixResult
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import PlannedRecipe, Recipe, plan_recipe
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs

log = logging.getLogger("nnpipe")

_RANKED_ON = 32  # samples


@dataclass(frozen=True)
class MixingChain:
    """A way, the place of its quantiser, and the way to the same runtime in floats."""

    way: PlannedRecipe
    place: int
    floats: PlannedRecipe

    @classmethod
    def from_recipe(cls, way: PlannedRecipe, named: str | Recipe) -> MixingChain:
        """Return the chain of a way; raise if none of its compilers keeps tensors in floats."""
        title = named if isinstance(named, str) else named.title
        place = next((n for n, each in enumerate(way.compilers) if _can_keep_floats(each)), None)
        if place is None or way.runtime is None or way.plan is None:
            raise ConfigError(
                f"{title}: none of its compilers quantises and keeps tensors in floats (keep_float)"
            )
        compilers = [
            *way.compilers[:place],
            *_make_float_compilers(way.compilers[place]),
            *way.compilers[place + 1 :],
        ]
        floats = Recipe(FLOATS, tuple(compilers), way.runtime, way.plan.export)
        return cls(way, place, plan_recipe(floats, [(way.wrapper, way.path)]))

    def build_compilers(self, kept: Sequence[str]) -> tuple[ModelCompiler, ...]:
        """Return the compilers of a model that keeps some tensors in floats, beside those that
        the way keeps.
        """
        made = list(self.way.compilers)
        own: Any = made[self.place]
        made[self.place] = replace(own, keep_float=(*own.keep_float, *kept))
        return tuple(made)


def _can_keep_floats(compiler: ModelCompiler) -> bool:
    return hasattr(compiler, "keep_float") and compiler.needs_calibration()


def _make_float_compilers(compiler: Any) -> tuple[ModelCompiler, ...]:
    """Return the compilers that do without quantisation what a quantiser does."""
    for name, floats in (("precision", "fp32"), ("target", "default")):
        if hasattr(compiler, name):
            return (replace(compiler, **{name: floats}, keep_float=()),)
    return ()


@dataclass(frozen=True)
class MixingSteps:
    """What the steps of a search have in common."""

    chain: MixingChain
    dataset: Dataset
    metric: QualityMetric
    place: Path
    calibration_samples: int
    limit: float
    source: ModelProcess
    worker: Worker

    def run_search(
        self, samples: np.ndarray[Any, Any], allowed: float, evaluations: int, progress: Progress
    ) -> tuple[list[tuple[str, float]], list[MixStep]]:
        """Return the ranking of the tensors, and the models that were tried."""
        request = {"indices": samples.tolist(), "metric": self.metric.name}
        plain = self._build_spec(FLOATS, *self._compile_floats(), self.chain.floats)
        self._send_request(
            "running the model in floats", {"do": "open", **request, "candidate": plain.to_json()}
        )
        ranking: list[tuple[str, float]] = []
        number = itertools.count()
        turns = iter(progress(range(evaluations), "trying", evaluations))

        def evaluate(kept: tuple[str, ...]) -> MixStep:
            next(turns, None)
            made = self._build_spec(
                MIXED, *self._compile_mixed(kept, self.place / f"tried{next(number)}")
            )
            found = self._send_request(
                "running it", {"do": "try", **request, "candidate": made.to_json()}
            )
            ratio, *interval = found["times"]
            step = MixStep(
                kept, found["loss"], found["low"], found["high"], ratio, (interval[0], interval[1])
            )
            log.info(
                "%d tensors in floats: loss %.4g, %.2f times the time",
                len(kept),
                step.loss,
                step.time,
            )
            return step

        first = evaluate(())
        if first.loss <= allowed or evaluations == 1:
            return ranking, [first]
        ranking = self._rank_tensors(samples)
        names = [name for name, _ in ranking]
        return ranking, search_floats(
            names, lambda kept: evaluate(kept) if kept else first, allowed, evaluations
        )

    def _rank_tensors(self, samples: np.ndarray[Any, Any]) -> list[tuple[str, float]]:
        quantised, _ = self._compile_mixed((), self.place / "integers")
        source = self._find_named_source(quantised)
        spec = self._build_spec(INTEGERS, quantised, self.chain.way.compilers)
        request = {
            "do": "rank",
            "source": str(source.path),
            "quantised": str(quantised.path),
            "candidate": spec.to_json(),
            "indices": samples[:_RANKED_ON].tolist(),
        }
        found = [
            (str(name), float(level))
            for name, level in self._send_request("ranking the tensors", request)
        ]
        if not found:
            raise ConfigError(
                "none of the tensors that the quantiser rounds is known by its name in the source"
            )
        return found

    def _find_named_source(self, quantised: Artifact) -> Artifact:
        """Return the model in floats whose tensors have the names to keep: what the quantiser
        takes, or converts to.
        """
        place, count = self.chain.place, len(self.chain.way.compilers)
        quantiser: Any = self.chain.way.compilers[place]
        if quantiser.names_from_result:
            return _list_lineage(self._compile_floats()[0])[count - 1 - place]
        return _list_lineage(quantised)[count - place]

    def build_finalists(self, best: MixStep | None, to: Path) -> list[CandidateSpec]:
        """Return the model in floats, that in integers, and the chosen one, which is written to
        its place.
        """
        floats = self._build_spec(FLOATS, *self._compile_floats(), self.chain.floats)
        if best is not None and not best.kept:
            return [floats, self._build_spec(INTEGERS, *self._compile_mixed((), to))]
        integers = self._build_spec(INTEGERS, *self._compile_mixed((), self.place / "integers"))
        return (
            [floats, integers]
            if best is None
            else [floats, integers, self._build_spec(MIXED, *self._compile_mixed(best.kept, to))]
        )

    def check_destination(self, to: Path) -> None:
        """Raise :class:`ConfigError` if writing the chosen model would replace the one that it
        is made from.
        """
        way = self.chain.way
        assert way.plan is not None
        path = _with_suffix(to, way.plan, way.compilers)
        self.source.list_destinations(way.plan, way.compilers, path)

    def _compile_floats(self) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        return self._compile_chain(
            self.chain.floats, self.chain.floats.compilers, self.place / "floats"
        )

    def _compile_mixed(
        self, kept: Sequence[str], to: Path
    ) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        return self._compile_chain(self.chain.way, self.chain.build_compilers(kept), to)

    def _compile_chain(
        self, way: PlannedRecipe, compilers: tuple[ModelCompiler, ...], to: Path
    ) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        assert way.plan is not None
        path = _with_suffix(to, way.plan, compilers)
        return self.source.compile(
            way.plan, compilers, path, self.calibration_samples, self.limit
        ), compilers

    def _build_spec(
        self,
        title: str,
        artifact: Artifact,
        compilers: tuple[ModelCompiler, ...],
        way: PlannedRecipe | None = None,
    ) -> CandidateSpec:
        way = way or self.chain.way
        return CandidateSpec(
            title, way.wrapper, way.path, compilers, way.runtime, artifact, dataset=self.dataset
        )

    def _send_request(self, what: str, request: Mapping[str, Any]) -> Any:
        return self.worker.attempt(what, request, self.limit)


def _with_suffix(path: Path, way: Plan, compilers: Sequence[ModelCompiler]) -> Path:
    return path if path.suffix else path.with_suffix(get_file_suffix(way, compilers))


def _list_lineage(artifact: Artifact) -> list[Artifact]:
    """Return an artifact, what it was made from, what that was made from, and so on."""
    found, parent = [artifact], artifact.parent
    while parent is not None:
        found.append(parent)
        parent = parent.parent
    return found


_SHARE = 0.5  # of the allowed loss that the search may use
_FEWEST_APART = 50  # samples to search with that no quantiser has seen


def mix(
    model: Any,
    to: str | Path,
    *,
    data: Any,
    max_loss: float = 0.01,
    way: str | Recipe = "onnx-int8",
    metric: str = "",
    evaluations: int = 26,
    preparation: Mapping[str, Any] | None = None,
    calibration_samples: int = 128,
    search_samples: int = 1000,
    max_seconds: float = 60.0,
    time_limit: float = 3600.0,
    progress: Progress = show_progress,
) -> MixResult:
    """Quantise a model, and keep those tensors in floats without which it would be worse than
    allowed.

    The tensors are ranked by the noise that 8 bits add to them
    (:mod:`nnpipe.analysis.channel_errors`).  The model is then compiled with the worst 0, 1, 2, 4,
    ... of them in floats, until it is good enough on validation or training samples, and tensors
    that are not needed are rounded again.  Of the models that are good enough, the fastest is
    chosen.  Finally it is compared with the model in floats and with the one in integers alone on
    the test split, which the search never sees.

    Parameters
    ----------
    model
        As in :func:`nnpipe.compare`.
    to
        The path of the chosen model.  Its description is written beside it.
    data
        As in :func:`nnpipe.compare`: samples with their classes, some of which are put aside to
        search with, or a :class:`~nnpipe.core.dataset.Dataset`.
    max_loss
        By how much the metric may be worse than that of the model in floats: 0.01 is one percentage
        point of accuracy. The search may use half of this, because the best of several models is
        partly the luckiest.
    way
        A short name of :func:`~nnpipe.workflows.recipes.recipes`, or a
        :class:`~nnpipe.workflows.recipes.Recipe`, whose quantiser takes ``keep_float``.
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
        The greatest time in seconds for which the chosen model, the one in floats and the one in
        integers take turns.
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
        If model, data and way do not fit together, or the way has no quantiser that keeps tensors
        in floats.
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
        place = stack.enter_context(create_working_folder())
        taken = import_inputs(
            model,
            data,
            place,
            preparation=preparation,
            calibration_samples=calibration_samples + search_samples,
            progress=progress,
        )
        if taken.dataset is None:
            raise ConfigError(
                "data should be samples with their classes, or a data set; there are none"
            )
        dataset = prepare_dataset(taken.dataset)
        chain = MixingChain.from_recipe(plan_recipe(way, taken.models), way)
        mixing = MixingSteps(
            chain,
            dataset,
            _find_metric(dataset, metric),
            place,
            calibration_samples,
            time_limit,
            stack.enter_context(ModelProcess(chain.way.wrapper, dataset, chain.way.path)),
            stack.enter_context(Worker(f"{subprocess_tasks.__name__}:Trials", shown=True)),
        )
        mixing.check_destination(Path(to))
        samples = select_search_samples(dataset, calibration_samples, search_samples)
        ranking, steps = mixing.run_search(samples, max_loss * _SHARE, evaluations, progress)
        best = find_fastest(steps, max_loss * _SHARE)
        candidates = mixing.build_finalists(best, Path(to))
        contest = Contest(
            [(each, None) for each in candidates], dataset, MeasureOptions(measure_seconds=0.0)
        )
        found, interrupted = run_comparison(
            contest,
            ComparisonPlan(max_seconds=max_seconds),
            title=f"Mixed precision of {_get_model_name(model)}",
            progress=progress,
        )
        files = {each.title: each.artifact.path for each in candidates if each.artifact is not None}
        comparison = ComparisonResult(found, files, FLOATS, interrupted)
        return MixResult(
            mixing.metric,
            max_loss,
            tuple(ranking),
            tuple(steps),
            best,
            len(samples),
            comparison,
            None if best is None else Path(to),
        )


def _find_metric(dataset: Dataset, name: str) -> QualityMetric:
    task = dataset.task
    if not name:
        return task.primary
    try:
        return task.metric(name)
    except KeyError:
        known = ", ".join(each.name for each in task.metrics)
        raise ConfigError(
            f"{name!r} is no metric of the task {task.name}; there are {known}"
        ) from None


def select_search_samples(
    dataset: Dataset, calibration_samples: int, count: int
) -> np.ndarray[Any, Any]:
    """Return samples to search with: of the validation split, or training samples that no
    quantiser has seen.
    """
    try:
        validation = dataset.split("validation")
    except NNPipeError:
        validation = np.array([], np.int64)
    # as Dataset.calibration draws
    train = np.random.default_rng(0).permutation(dataset.split("train"))
    unseen = train[calibration_samples:]
    if len(validation) + len(unseen) < _FEWEST_APART:
        unseen = train
    found = np.concatenate([np.random.default_rng(0).permutation(validation), unseen])[:count]
    if not len(found):
        raise ConfigError(
            "there are no validation or training samples to search with; leave some to these splits"
        )
    return found.astype(np.int64)


def _get_model_name(model: Any) -> str:
    return Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
