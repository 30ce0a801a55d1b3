"""What a search file searches: a Python function, or the settings of a pipeline file."""

from __future__ import annotations

import importlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.naming import nearest
from nnpipe.core.progress import silent
from nnpipe.experiment.settings import override
from nnpipe.measuring.constraints import metric_of
from nnpipe.measuring.run import Run
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.journal import digest_of
from nnpipe.workflows.pipeline.file import Pipeline
from nnpipe.workflows.pipeline.run import PipelineResult, run_pipeline
from nnpipe.workflows.search.trial_report import TrialReport
from nnpipe.workflows.sweep.estimates import Figures

REPORT = "report"
_CONFIDENCE = 0.95


class SearchSubject(ABC):
    """Something with arguments that a search chooses."""

    @abstractmethod
    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless it has the parameters of a space and the objectives."""

    @abstractmethod
    def evaluate(self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport) -> Any:
        """Carry out a trial; return the value of the objective, or values by name."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what it is; two that differ cannot share trials."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What it is, by name, for reports."""


class SearchedFunction(SearchSubject):
    """A Python function.

    Parameters
    ----------
    function
        Takes the parameters by name, and a report if it has an argument ``report``.
    fixed
        Arguments that are the same in all trials.
    path
        The import path, if it came from one.
    """

    def __init__(self, function: Callable[..., Any], fixed: Mapping[str, Any] | None = None, path: str = "") -> None:
        self.function, self.fixed, self.path = function, dict(fixed or {}), path
        self._reports = False

    @classmethod
    def imported(cls, path: str, fixed: Mapping[str, Any]) -> SearchedFunction:
        """Return the function of an import path such as ``package.module.function``.

        Raises
        ------
        ConfigError
            If it cannot be imported, or is no function.
        """
        module, _, name = path.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"function: {path} cannot be imported ({error})") from None
        if not callable(found):
            raise ConfigError(f"function: {path} is no function, but {type(found).__name__}")
        return cls(found, fixed, path)

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless it takes every parameter, and needs no other one."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        try:
            declared = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        by_name = {key: each for key, each in declared.items() if each.kind in kinds}
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in declared.values())
        for where, given in (("space", space.parameters), ("arguments", self.fixed)):
            for parameter in given:
                if parameter not in by_name and not takes_all:
                    hint = nearest(parameter, by_name) or f"; it takes: {', '.join(by_name) or 'nothing'}"
                    raise ConfigError(f"{where}: {name} takes no argument {parameter!r}{hint}")
        for parameter in self.fixed:
            if parameter in space.parameters:
                raise ConfigError(f"arguments: {parameter!r} is a parameter of the space, too")
        for key, each in by_name.items():
            known = key in space.parameters or key in self.fixed or key == REPORT
            if each.default is inspect.Parameter.empty and not known:
                raise ConfigError(f"space: {name} needs the argument {key!r}, which is no parameter")
        self._reports = REPORT in by_name and REPORT not in {*space.parameters, *self.fixed}

    def evaluate(self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport) -> Any:
        """Call the function."""
        return self.function(**self.fixed, **arguments, **({REPORT: report} if self._reports else {}))

    def to_json(self) -> dict[str, Any]:
        """Return the import path and the fixed arguments."""
        return {"function": self.path, "arguments": self.fixed}

    @property
    def facts(self) -> dict[str, str]:
        """The function and its fixed arguments."""
        name = self.path or str(getattr(self.function, "__name__", type(self.function).__name__))
        fixed = {"Fixed arguments": json.dumps(self.fixed, default=str)} if self.fixed else {}
        return {"Function": name, **fixed}


class SearchedPipeline(SearchSubject):
    """A pipeline file, of which each parameter is a setting: ``model.arguments.units``.

    Parameters
    ----------
    settings
        The content of the pipeline file.
    candidate
        The title of the candidate whose metrics count; empty for the last one.
    output
        Folder for the results of each trial.
    """

    def __init__(self, settings: Mapping[str, Any], candidate: str, output: Path) -> None:
        self.settings, self.candidate, self.output = dict(settings), candidate, output

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless its settings can be changed so, and there are such metrics."""
        middle = space.configuration(lambda _, parameter: parameter.value_at(0.5))
        self.check_settings(self.changed(space.arguments(middle)), objectives, f"with {json.dumps(middle)[:200]}: ")

    def check_settings(self, settings: Mapping[str, Any], objectives: Objectives, told: str = "") -> None:
        """Raise :class:`ConfigError` unless these are settings of a pipeline with the candidate and the metrics."""
        for name in objectives.names:
            metric_of(name)
        try:
            pipeline = Pipeline.from_settings(settings)
        except NNPipeError as error:
            raise type(error)(f"pipeline: {told}{error}") from None
        titles = [candidate.title for model in pipeline.models for candidate in model.candidates]
        if self.candidate and self.candidate not in titles:
            hint = nearest(self.candidate, titles) or f"; there are: {', '.join(titles)}"
            raise ConfigError(f"candidate: there is no {self.candidate!r} in the pipeline{hint}")

    def evaluate(self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport) -> Any:
        """Carry out the pipeline, and return all metrics that are objectives."""
        found = run_pipeline(self.settings_of(trial, arguments), progress=silent)
        run = found.run_of(self.candidate) if self.candidate else found.runs[-1]
        if not self.candidate and found.failures:
            raise ConfigError(f"{found.failures[-1].title}: {found.failures[-1].cause}")
        figures = Figures(run, _as_trained(found, run))
        values = {}
        for name in report.objectives:
            figure = figures.of(metric_of(name), _CONFIDENCE)
            if figure.value is None:
                raise ConfigError(f"{name} is not known: {figure.reason}")
            values[name] = figure.value
        return values

    def to_json(self) -> dict[str, Any]:
        """Return the candidate, and a digest of the settings."""
        return {"pipeline": digest_of(self.settings), "candidate": self.candidate}

    @property
    def facts(self) -> dict[str, str]:
        """The pipeline's title and the candidate."""
        title = str(self.settings.get("title") or "without a title")
        return {"Pipeline": title, "Candidate": self.candidate or "the last one"}

    def settings_of(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a trial's pipeline."""
        return {**self.changed(arguments), "output": str(self.output / "trials" / str(trial.number))}

    def changed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the pipeline with those of a trial."""
        return override(self.settings, [f"{name}={json.dumps(value)}" for name, value in arguments.items()])


def _as_trained(found: PipelineResult, run: Run) -> Run | None:
    """Return the run of the model as trained from which a run's model was compiled, if it was measured."""
    for model in found.pipeline.models:
        if run.title in [candidate.title for candidate in model.candidates]:
            trained = [candidate.title for candidate in model.candidates if candidate.runtime is None]
            return next((each for each in found.runs if each.title in trained), None)
    return None
