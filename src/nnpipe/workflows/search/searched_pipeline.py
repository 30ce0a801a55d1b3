"""A pipeline file of which a search chooses settings, and measures one candidate."""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.messages import suggest_name
from nnpipe.core.progress import silent
from nnpipe.experiment.settings import override, read_settings
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.racing import SHARES
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial, TrialResult
from nnpipe.workflows.candidates.stages import prepare_dataset, train_once
from nnpipe.workflows.journal import compute_digest
from nnpipe.workflows.pipeline.compile import get_time_limit
from nnpipe.workflows.pipeline.entries import parse_component, parse_text
from nnpipe.workflows.pipeline.file import (
    CandidateSettings,
    ModelSettings,
    Pipeline,
    make_file_name,
)
from nnpipe.workflows.pipeline.run import list_weight_paths
from nnpipe.workflows.search.measured_subject import MeasuredSubject, SearchChoice
from nnpipe.workflows.sweep.budget import SweepBudget
from nnpipe.workflows.sweep.estimates import Figures, sample_count
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Model, Point
from nnpipe.workflows.sweep.race import make_staged_point
from nnpipe.workflows.sweep.run import FinishedPoint, PointMeasurer
from nnpipe.workflows.sweep.sweep import run_sweep
from nnpipe.workflows.sweep.sweep_result import SweepResult
from nnpipe.workflows.workers.machine_turns import acquire_turn

BUDGET = "50 %"
"""How long to measure, trials included, as a share of measuring every trial in full."""

_STAGE = 2  # of a race, in which trials are measured
_CONFIDENCE = 0.95


class SearchedPipeline(MeasuredSubject):
    """A pipeline file, of which each parameter is a setting: ``model.arguments.units``.

    Only one candidate is compiled and measured, and the model as trained where the choice needs it.
    Trainings are repeated only if a setting of the model or the training differs.

    Parameters
    ----------
    settings
        The content of the pipeline file.
    candidate
        The title of the candidate whose metrics count; empty for the last one.
    output
        Folder for all results.
    choice
        What trials are judged by.
    """

    def __init__(
        self, settings: Mapping[str, Any], candidate: str, output: Path, choice: SearchChoice
    ) -> None:
        self.settings, self.candidate, self.output, self.choice = (
            dict(settings),
            candidate,
            output,
            choice,
        )
        # one at a time on a machine, or they slow each other down
        self._measuring = threading.Lock()
        self._training: dict[Path, threading.Lock] = defaultdict(threading.Lock)

    @classmethod
    def from_settings(cls, data: Mapping[str, Any], constraints: Sequence[str]) -> SearchedPipeline:
        """Return the subject of a search file, given those of its constraints that are on
        metrics.
        """
        return cls(*parse_pipeline_settings(data, constraints))

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless its settings can be changed so."""
        middle = space.configuration(lambda _, parameter: parameter.get_value_at(0.5))
        self.check_settings(
            self.apply_arguments(space.arguments(middle)), f"with {json.dumps(middle)[:200]}: "
        )

    def check_settings(self, settings: Mapping[str, Any], told: str = "") -> None:
        """Raise :class:`ConfigError` unless these are settings of a pipeline with the candidate."""
        try:
            pipeline = Pipeline.from_settings(settings)
        except NNPipeError as error:
            raise type(error)(f"pipeline: {told}{error}") from None
        self._find_candidate(pipeline)
        if pipeline.load != LoadOptions():
            raise ConfigError(
                "pipeline: a search measures one call after the other; leave out load"
            )

    def build_settings(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a trial's pipeline."""
        return {
            **self.apply_arguments(arguments),
            "output": str(self.output / "trials" / str(trial.number)),
        }

    def apply_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the pipeline with those of a trial."""
        return override(
            self.settings, [f"{name}={json.dumps(value)}" for name, value in arguments.items()]
        )

    def prepare_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Train the model of a trial unless that has been done; return its files, as far as they
        are in the folder.
        """
        point = self._prepare_sweep(trial, arguments).points[-1]
        record = self._record(point.model)
        found = (*list_weight_paths(point.model.path), *([record] if record.is_file() else []))
        return tuple(path for path in found if self.output in path.parents)

    def list_kept_files(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Return the files of the trained model."""
        return self.prepare_trial(trial, arguments)

    @property
    def final_output(self) -> Path:
        """The folder of the search."""
        return self.output

    def measure_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> TrialResult:
        """Train, compile and measure the candidate here."""
        sweep = self._prepare_sweep(trial, arguments)
        *sources, point = sweep.points
        with (
            self._measuring,
            PointMeasurer(sweep, (), retrain=False, retry=True, turns=self.turns) as measurer,
        ):
            runs = [
                self._measure_point(measurer, sweep, each).outcome for each in (*sources, point)
            ]
        for outcome in runs:
            if outcome.run is None:
                raise ConfigError(outcome.reason)
        run, reference = runs[-1].run, runs[0].run if sources else None
        assert run is not None
        figures = Figures(run, reference)
        values, intervals = {}, {}
        for metric in self.choice.metrics:
            figure = figures.get_figure(metric, _CONFIDENCE)
            if figure.value is None:
                raise ConfigError(f"{metric.name} is not known: {figure.reason}")
            values[metric.name] = figure.value
            if (
                math.isfinite(figure.low)
                and math.isfinite(figure.high)
                and figure.low < figure.high
            ):
                intervals[metric.name] = (figure.low, figure.high)
        return TrialResult(values, intervals)

    def measure_finalists(
        self,
        trials: Sequence[SearchTrial],
        arguments: Mapping[int, Mapping[str, Any]],
        seed: int,
        command: Sequence[str],
        *,
        only_known: bool = False,
    ) -> SweepResult | None:
        """Race: measure those trials further that may still be chosen, or may be on the front."""
        finished = [trial for trial in trials if trial.state == "finished"]
        if not finished:
            return None
        pipelines = [
            Pipeline.from_settings(self.build_settings(trial, arguments[trial.number]))
            for trial in finished
        ]
        points = [
            self._build_points(trial, pipeline)
            for trial, pipeline in zip(finished, pipelines, strict=True)
        ]
        sweep = self._build_sweep(
            points, pipelines[0], seed, self.choice.budget or SweepBudget.parse(BUDGET)
        )
        with acquire_turn(self.turns, alone=True):
            return run_sweep(sweep, command, first=_STAGE, only_known=only_known)

    def to_json(self) -> dict[str, Any]:
        """Return the candidate, and a digest of the settings."""
        return {"pipeline": compute_digest(self.settings), "candidate": self.candidate}

    @property
    def facts(self) -> dict[str, str]:
        """The pipeline's title, the candidate, and what is required."""
        title = str(self.settings.get("title") or "without a title")
        return {
            "Pipeline": title,
            "Candidate": self.candidate or "the last one",
            **self.choice.facts,
        }

    def _prepare_sweep(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> Sweep:
        """Return the points of a trial, whose model is trained."""
        pipeline = Pipeline.from_settings(self.build_settings(trial, arguments))
        sweep = self._build_sweep([self._build_points(trial, pipeline)], pipeline, 0, None)
        model = sweep.points[-1].model
        with self._training[model.path], acquire_turn(self.turns):
            train_once(
                model.wrapper,
                sweep.dataset,
                model.training,
                model.path,
                record=self._record(model),
                makes=model.makes_weights,
                progress=silent,
            )
        return sweep

    def _record(self, model: Model) -> Path:
        return self.output / "trained" / f"{make_file_name(model.title)}.training.json"

    def _measure_point(self, measurer: PointMeasurer, sweep: Sweep, point: Point) -> FinishedPoint:
        share = SHARES[_STAGE - 1]
        verify = replace(sweep.verify, verify_samples=0)
        return measurer.run_point(make_staged_point(point, share, sample_count(sweep)), verify)

    def _build_sweep(
        self,
        points: Sequence[tuple[Point, ...]],
        pipeline: Pipeline,
        seed: int,
        budget: SweepBudget | None,
    ) -> Sweep:
        """Return the points as a sweep; what is the same in all trials is taken from one of
        their pipelines.
        """
        every = {point.title: point for group in points for point in group}
        models = {point.model.title: point.model for point in every.values()}
        return self.choice.sweep(
            pipeline.title,
            self.output,
            prepare_dataset(pipeline.dataset),
            tuple(models.values()),
            tuple(every.values()),
            calibration_samples=pipeline.calibration_samples,
            verify=pipeline.verify,
            time_limit=get_time_limit(pipeline, self._find_candidate(pipeline)[1]),
            seed=seed,
            budget=budget,
        )

    def _build_points(self, trial: SearchTrial, pipeline: Pipeline) -> tuple[Point, ...]:
        """Return the candidate of a trial, behind the model as trained if a metric is told
        against it.
        """
        settings, candidate = self._find_candidate(pipeline)
        model = self._build_model(settings, pipeline)
        own = Point(
            f"trial {trial.number}",
            model,
            candidate.compilers,
            candidate.runtime,
            candidate.way,
            pipeline.measure,
            candidate.deployment,
        )
        if not any(each.compared or each.name == "agreement" for each in self.choice.metrics):
            return (own,)
        return Point(f"{model.title} as trained", model, (), None, None, pipeline.measure), own

    def _build_model(self, settings: ModelSettings, pipeline: Pipeline) -> Model:
        title = settings.title or type(settings.wrapper).__name__
        if settings.training is None and not settings.makes_weights:
            return Model(title, settings.wrapper, settings.path, None)
        training = None if settings.training is None else settings.training.to_json()
        key = compute_digest([settings.wrapper.describe(), training, pipeline.dataset.describe()])
        path = self.output / "trained" / f"{key}{settings.path.suffix}"
        return Model(
            f"{title} {key[:8]}", settings.wrapper, path, settings.training, settings.makes_weights
        )

    def _find_candidate(self, pipeline: Pipeline) -> tuple[ModelSettings, CandidateSettings]:
        """Return the candidate whose metrics count, with its model."""
        every = [(model, candidate) for model in pipeline.models for candidate in model.candidates]
        if not self.candidate:
            return every[-1]
        for model, candidate in every:
            if candidate.title == self.candidate:
                return model, candidate
        titles = [candidate.title for _, candidate in every]
        hint = suggest_name(self.candidate, titles) or f"; there are: {', '.join(titles)}"
        raise ConfigError(f"candidate: there is no {self.candidate!r} in the pipeline{hint}")


def parse_pipeline_settings(
    data: Mapping[str, Any], constraints: Sequence[str]
) -> tuple[Mapping[str, Any], str, Path, SearchChoice]:
    """Return the content of the pipeline that a search file names, the candidate, the folder,
    and the choice.
    """
    given = data["pipeline"]
    settings = (
        given if isinstance(given, dict) else read_settings(Path(parse_text(given, "pipeline")))
    )
    candidate = "" if data.get("candidate") is None else parse_text(data["candidate"], "candidate")
    if data.get("objectives") is None:
        raise ConfigError("objectives: expected a list of metrics, such as [latency_median, size]")
    output = Path(parse_text(data.get("output", "build/search"), "output"))
    return settings, candidate, output, SearchChoice.from_settings(data, constraints, ())


NETWORK = "network.yaml"
"""The file of a trial's network in the folder of the trial."""

_MODEL = "nnpipe.modelwrappers.files.declared.DeclaredModel"


class SearchedArchitecture(SearchedPipeline):
    """A pipeline whose model is a network of cells, which parameters choose; others may be settings
    of the pipeline.

    Parameters
    ----------
    architecture
        The networks to choose from, as in
        :class:`~nnpipe.architectures.architecture_space.ArchitectureSpace`; what is left out of
        ``input``, ``classes``, ``input_name`` and ``target`` follows from the pipeline's data set.
    settings, candidate, output, choice
        As for :class:`~nnpipe.workflows.search.searched_pipeline.SearchedPipeline`; the model's
        network and the path of its weights are replaced by those of the trial.

    Raises
    ------
    ConfigError
        If the architecture or the model of the pipeline is wrong.
    """

    def __init__(
        self,
        architecture: Mapping[str, Any],
        settings: Mapping[str, Any],
        candidate: str,
        output: Path,
        choice: SearchChoice,
    ) -> None:
        if "models" in settings or not isinstance(settings.get("model", {}), dict):
            raise ConfigError(
                "pipeline: an architecture search has one model, described under model"
            )
        model = {"class": _MODEL, **settings.get("model", {})}
        if model.get("training") is None:
            raise ConfigError(
                "pipeline: model.training is missing: every network is trained before it is "
                "measured"
            )
        super().__init__({**settings, "model": model}, candidate, output, choice)
        self.architecture = ArchitectureSpace.from_json(
            {**_describe_data(settings, model, architecture), **architecture}
        )
        self._names = frozenset(self.architecture.parameters())

    @classmethod
    def from_settings(
        cls, data: Mapping[str, Any], constraints: Sequence[str]
    ) -> SearchedArchitecture:
        """Return the subject of a search file, given those of its constraints that are on
        metrics.
        """
        return cls(data["architecture"], *parse_pipeline_settings(data, constraints))

    def space(self, more: Mapping[str, Any], constraints: list[Any]) -> SearchSpace:
        """Return the parameters of the architecture together with further ones.

        Raises
        ------
        ConfigError
            If one of them has the name of one of the architecture, or is wrong.
        """
        for name in more:
            if name in self._names:
                raise ConfigError(f"space.{name}: is a parameter of the architecture, too")
        own = self.architecture
        return SearchSpace.from_json(
            {**own.parameters(), **more}, [*own.constraints(), *constraints]
        )

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless a network of the space can be trained and measured
        so.
        """
        example = self.architecture.sample(np.random.default_rng(0))
        with TemporaryDirectory() as folder:
            settings = self._with_network(example, Path(folder))
            others = {
                name: each for name, each in space.parameters.items() if name not in self._names
            }
            inner = SearchedPipeline(settings, self.candidate, self.output, self.choice)
            if others:
                inner.check(SearchSpace(others), objectives)
            else:
                inner.check_settings(settings)

    def build_settings(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a trial's pipeline, and write its network."""
        chosen = {name: value for name, value in arguments.items() if name in self._names}
        others = {name: value for name, value in arguments.items() if name not in self._names}
        inner = SearchedPipeline(
            self._with_network(chosen, self.output / "trials" / str(trial.number)),
            self.candidate,
            self.output,
            self.choice,
        )
        return inner.build_settings(trial, others)

    def to_json(self) -> dict[str, Any]:
        """Return the candidate, a digest of the settings, and what of the architecture is not
        chosen.
        """
        found = self.architecture.to_json()
        cell = {name: value for name, value in found["cell"].items() if name != "operations"}
        # Choices may grow without making the trials before those of something else.
        chosen = ("channels", "cells")
        return {
            **super().to_json(),
            "architecture": {name: value for name, value in found.items() if name not in chosen}
            | {"cell": cell},
        }

    def _with_network(self, configuration: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        import yaml

        path = folder / NETWORK
        description = self.architecture.description(configuration)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, yaml.safe_dump(description, sort_keys=False))
        model = dict(self.settings["model"])
        arguments = {**(model.get("arguments") or {}), "network": str(path)}
        return {
            **self.settings,
            "model": {**model, "arguments": arguments, "path": str(folder / "model.safetensors")},
        }


def _describe_data(
    settings: Mapping[str, Any], model: Mapping[str, Any], given: Any
) -> dict[str, Any]:
    """Return what a data set says of the networks: the shape of images, the number of classes,
    and their names.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"architecture: expected an object, found {type(given).__name__}")
    if {"input", "classes", "input_name", "target"} <= set(given):
        return {}
    if "dataset" not in settings:
        raise ConfigError("pipeline: dataset is missing")
    dataset = parse_component(settings["dataset"], Dataset, "dataset")
    try:
        spec = dataset.spec
    except NNPipeError as error:
        raise ConfigError(
            f"architecture: give input and classes, for the data set does not tell them: {error}"
        ) from None
    if len(spec.inputs) != 1 or not spec.class_names or not spec.targets:
        raise ConfigError(
            f"architecture: networks of cells classify images, but the task of "
            f"{type(dataset).__name__} is {spec.task}"
        )
    shape = [*spec.inputs[0].shape[1:]]
    resized = (model.get("arguments") or {}).get("resize")
    if isinstance(resized, list) and len(resized) == 2:
        shape = [*resized, *shape[2:]]
    found = {
        "input": shape,
        "classes": len(spec.class_names),
        "input_name": spec.inputs[0].name,
        "target": spec.targets[0].name,
    }
    if None in shape and "input" not in given:
        raise ConfigError(
            "architecture: give input, for the images of the data set have no fixed size"
        )
    return found
