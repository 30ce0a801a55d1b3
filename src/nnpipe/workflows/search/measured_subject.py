"""What is common to searches whose trials are models that are compiled and measured."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.constraints import MetricConstraint, get_metric_quantity
from nnpipe.measuring.quantities import Quantity
from nnpipe.searching.objectives import Limit, Objectives
from nnpipe.searching.trial_store import SearchTrial, TrialResult
from nnpipe.workflows.pipeline.entries import count_of, parse_text
from nnpipe.workflows.search.subjects import SearchSubject, TrialReport
from nnpipe.workflows.sweep.budget import SweepBudget
from nnpipe.workflows.sweep.file import (
    CONFIRMATIONS,
    Sweep,
    parse_accepted_doubts,
    parse_confidence,
    parse_constraints,
    parse_metric,
)
from nnpipe.workflows.sweep.grid import list_of
from nnpipe.workflows.sweep.points import Model, Point
from nnpipe.workflows.sweep.sweep_result import SweepResult
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import MachineTurns

KEYS = ("choose", "confirmations", "accept_doubts", "confidence", "budget")
"""The keys of a search file that say how it chooses, beside ``objectives`` and ``constraints``."""

HINT = "a constraint on a metric is such as latency_p90 <= 2 ms"
_BOUND = re.compile(r"\s*(loss\(\w+\)|\w[\w.]*)\s*(?:<=|>=)")


@dataclass(frozen=True)
class SearchChoice:
    """What trials are judged by.

    Parameters
    ----------
    objectives
        The metrics of the search and of the Pareto front.
    constraints
        What the chosen one must hold, judged on intervals.
    choose
        The metric by which the best of those is chosen.
    confirmations, accept_doubts, confidence, budget
        As in sweep files.
    """

    objectives: tuple[Quantity, ...]
    constraints: tuple[MetricConstraint, ...]
    choose: Quantity
    confirmations: int = CONFIRMATIONS
    accept_doubts: tuple[str, ...] = ()
    confidence: float = 0.95
    budget: SweepBudget | None = None

    @classmethod
    def from_settings(
        cls, data: Mapping[str, Any], constraints: Sequence[str], default: Sequence[str]
    ) -> SearchChoice:
        """Return the choice of a search file.

        Parameters
        ----------
        data
            The content of the file.
        constraints
            Those of its constraints that are on metrics.
        default
            The objectives if the file names none.

        Raises
        ------
        ConfigError
            If a setting is wrong; the message names its place in the file.
        """
        given = data.get("objectives")
        names = (
            list(given) if isinstance(given, dict) else list_of(data, "objectives", list(default))
        )
        objectives = tuple(parse_metric(name, f"objectives.{i}") for i, name in enumerate(names))
        if isinstance(given, dict):
            _check_directions(given, objectives)
        return cls(
            objectives,
            parse_constraints({"constraints": list(constraints)}),
            parse_metric(data.get("choose", objectives[0].name), "choose"),
            count_of(data.get("confirmations", CONFIRMATIONS), "confirmations"),
            parse_accepted_doubts(list_of(data, "accept_doubts", [])),
            parse_confidence(data.get("confidence", 0.95)),
            None if data.get("budget") is None else SweepBudget.parse(data["budget"]),
        )

    @property
    def metrics(self) -> tuple[Quantity, ...]:
        """All metrics by which trials are judged, each once."""
        wanted = (
            *self.objectives,
            self.choose,
            *(constraint.metric for constraint in self.constraints),
        )
        return tuple({each.name: each for each in wanted}.values())

    @property
    def facts(self) -> dict[str, str]:
        """What is required and what is chosen by, for reports."""
        required = (
            {"Constraints": "; ".join(each.text for each in self.constraints)}
            if self.constraints
            else {}
        )
        return {**required, "Chosen by": self.choose.title}

    def build_objectives(self, limits: Sequence[Limit]) -> Objectives:
        """Return the objectives of the search, with limits for its trials."""
        ways = {
            each.name: "minimize" if each.less_is_better else "maximize" for each in self.objectives
        }
        return Objectives(ways, tuple(limits))

    def list_limits(self) -> tuple[Limit, ...]:
        """Return the constraints as limits for what trials estimate."""
        return tuple(Limit(each.metric.name, each.bound, each.at_most) for each in self.constraints)

    def sweep(
        self,
        title: str,
        output: Path,
        dataset: Dataset,
        models: Sequence[Model],
        points: Sequence[Point],
        *,
        calibration_samples: int,
        verify: VerifyOptions,
        time_limit: float,
        seed: int,
        budget: SweepBudget | None,
    ) -> Sweep:
        """Return a sweep over points, which is judged as the search is."""
        return Sweep(
            title,
            output,
            dataset,
            calibration_samples,
            verify,
            tuple(models),
            tuple(points),
            {},
            self.constraints,
            self.objectives,
            self.choose,
            self.confirmations,
            self.accept_doubts,
            self.confidence,
            seed,
            time_limit,
            budget,
            trained_competes=False,
        )


def split_constraints(constraints: Any, parameters: Container[str]) -> tuple[list[Any], list[str]]:
    """Return the constraints on parameters of the space, and those on metrics.

    Raises
    ------
    ConfigError
        If one could be either.
    """
    if constraints is None:
        return [], []
    if not isinstance(constraints, (list, tuple)):
        raise ConfigError(f"constraints: expected a list, found {type(constraints).__name__}")
    of_space: list[Any] = []
    of_metrics: list[str] = []
    for place, text in enumerate(constraints):
        found = _BOUND.match(text) if isinstance(text, str) else None
        name = found[1] if found else ""
        if not name or not _is_metric(name):
            of_space.append(text)
        elif name in parameters:
            raise ConfigError(
                f"constraints.{place}: {name} is a parameter of the space and a metric"
            )
        else:
            of_metrics.append(parse_text(text, f"constraints.{place}"))
    return of_space, of_metrics


def _is_metric(name: str) -> bool:
    try:
        get_metric_quantity(name)
    except ConfigError:
        return False
    return True


def _check_directions(given: Mapping[str, Any], metrics: Sequence[Quantity]) -> None:
    for name, metric in zip(given, metrics, strict=True):
        better = "minimize" if metric.less_is_better else "maximize"
        if given[name] != better:
            raise ConfigError(
                f"objectives.{name}: {metric.name} is better if it is {better}d; leave the "
                f"direction out"
            )


class MeasuredSubject(SearchSubject):
    """A model whose settings are searched.

    Trials are measured a little.  At the end of the search, the best of them are measured in full
    as the points of a sweep: constraints are judged on intervals, the chosen one is measured again,
    and gets a certificate.

    Attributes
    ----------
    choice
        What trials are judged by.
    output
        The folder for all files.
    turns
        When this process may compute and measure, if others work on this machine, too.
    elsewhere
        Lets another machine measure a trial, given its arguments, too; what can be done anywhere is
        done here.
    """

    choice: SearchChoice
    output: Path
    turns: MachineTurns | None = None
    elsewhere: Callable[[SearchTrial, Mapping[str, Any]], TrialResult] | None = None

    def first(self) -> Sequence[Mapping[str, Any]]:
        """Return the configurations to begin with; by default the sampler chooses all."""
        return ()

    def close(self) -> None:
        """End what trials have started; nothing by default."""

    def evaluate(
        self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport
    ) -> TrialResult:
        """Measure a trial a little, here or on another machine; return all metrics that trials
        are judged by.
        """
        return (self.elsewhere or self.measure_trial)(trial, arguments)

    @abstractmethod
    def prepare_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Do for a trial what can be done on any machine, unless that has been done.

        Returns
        -------
        tuple of Path
            The files in the folder from which :meth:`measure_trial` goes on elsewhere.
        """

    @abstractmethod
    def measure_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> TrialResult:
        """Measure a trial a little on this machine."""

    def list_kept_files(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Return the files of a finished trial that :meth:`measure_finalists` needs on whatever
        machine; none by default."""
        return ()

    def check_elsewhere(self) -> None:
        """Raise :class:`~nnpipe.core.errors.ConfigError` if workers on other machines cannot do
        it; they can.
        """

    @property
    @abstractmethod
    def final_output(self) -> Path:
        """The folder of the final measurements."""

    @abstractmethod
    def measure_finalists(
        self,
        trials: Sequence[SearchTrial],
        arguments: Mapping[int, Mapping[str, Any]],
        seed: int,
        command: Sequence[str],
        *,
        only_known: bool = False,
    ) -> SweepResult | None:
        """Measure the best trials in full, and return which one to ship; None if no trial is good
        enough to try.

        Parameters
        ----------
        trials
            All trials.
        arguments
            What the values of finished trials stand for, by number.
        seed
            The seed of the search.
        command
            The command line, for the result files.
        only_known
            Whether all of it has been measured, so that nothing is measured here.
        """
