"""The content of a sweep file, checked completely before anything slow begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.task import Task
from nnpipe.core.training import TrainingOptions
from nnpipe.experiment.settings import check_keys
from nnpipe.measuring.constraints import MetricConstraint, check_consistent, get_metric_quantity
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.quantities import Quantity, find_quantity
from nnpipe.measuring.validity_warning import BARRING
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.decision import DecisionRule
from nnpipe.workflows.devices.device import USUAL, Device, Fleet, parse_fleet, read_devices
from nnpipe.workflows.devices.device_measuring import PATIENCE
from nnpipe.workflows.pipeline.entries import (
    build_component,
    count_of,
    get_section,
    makes_weights,
    parse_component,
    parse_model,
    parse_seed,
    parse_text,
)
from nnpipe.workflows.pipeline.file import make_file_name
from nnpipe.workflows.sweep.budget import SweepBudget
from nnpipe.workflows.sweep.grid import iter_chains, iter_runtimes, list_of
from nnpipe.workflows.sweep.points import Model, Point, build_combinations
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

_MOST_NAMES = 5  # in one line


def parse_constraints(data: Mapping[str, Any]) -> tuple[MetricConstraint, ...]:
    """Return the constraints of a sweep file.

    Raises
    ------
    ConfigError
        If a constraint cannot be read, or if no candidate could meet all of them.
    """
    found = []
    for i, text in enumerate(list_of(data, "constraints", [])):
        try:
            found.append(MetricConstraint.parse(parse_text(text, f"constraints.{i}")))
        except ConfigError as error:
            place = "" if str(error).startswith("constraints") else f"constraints.{i}: "
            raise ConfigError(f"{place}{error}") from None
    try:
        check_consistent(found)
    except ConfigError as error:
        raise ConfigError(f"constraints: {error}") from None
    return tuple(found)


def parse_metric(name: Any, where: str) -> Quantity:
    """Return the metric of a name; ``where`` is the setting that the error names."""
    try:
        return get_metric_quantity(parse_text(name, where))
    except ConfigError as error:
        raise ConfigError(
            str(error) if str(error).startswith(where) else f"{where}: {error}"
        ) from None


def check_sources(metrics: Collection[str], lacking: Collection[str]) -> None:
    """Raise :class:`ConfigError` if a metric needs a model to be measured as trained, and it is
    not.

    Parameters
    ----------
    metrics
        Names of all metrics that candidates are judged by.
    lacking
        Titles of the models that are not measured as trained.
    """
    # These compare a candidate with the model as trained.
    wanted = sorted(
        name for name in set(metrics) if name == "agreement" or find_quantity(name).compared
    )
    if wanted and lacking:
        first = sorted(lacking)[:_MOST_NAMES]
        more = f" and {len(lacking) - len(first):,} more" if len(lacking) > len(first) else ""
        raise ConfigError(
            f"{', '.join(wanted)}: cannot be told for {', '.join(first)}{more}, which is not "
            f"measured as trained; "
            "set as_trained: true and have its framework installed, or leave the metric out"
        )


def parse_accepted_doubts(kinds: Sequence[Any]) -> tuple[str, ...]:
    """Return the kinds of doubt in spite of which a candidate may be chosen.

    Raises
    ------
    ConfigError
        If a kind is unknown, or keeps no candidate from being chosen.
    """
    for place, kind in enumerate(kinds):
        if kind not in BARRING:
            raise ConfigError(
                f"accept_doubts.{place}: {kind!r} keeps no candidate from being chosen; these do: "
                f"{', '.join(BARRING)}"
            )
    return tuple(kinds)


def parse_confidence(given: Any) -> float:
    """Return the confidence level of intervals, from 0.5 to below 1; raise :class:`ConfigError`
    for anything else.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.5 <= given < 1:
        raise ConfigError(f"confidence: expected a number from 0.5 to below 1, found {given!r}")
    return float(given)


TARGET_KEYS = ("devices", "targets", "target_patience")


@dataclass(frozen=True)
class Targets:
    """The devices of a sweep.

    Parameters
    ----------
    devices
        The devices; without any, everything is measured on this machine.
    currency, leases
        As in :class:`~nnpipe.workflows.devices.device.Fleet`.
    patience
        How long a device that has gone away is waited for, in seconds.
    """

    devices: tuple[Device, ...] = ()
    currency: str = ""
    leases: str = ""
    patience: float = PATIENCE

    @classmethod
    def from_settings(cls, data: Mapping[str, Any]) -> Targets:
        """Return the devices that a sweep file names as ``targets``.

        Raises
        ------
        NNPipeError
            If a setting is wrong; the message names its place.
        """
        patience = data.get("target_patience", PATIENCE)
        if (
            isinstance(patience, bool)
            or not isinstance(patience, (int, float))
            or not 0 <= patience <= 86_400
        ):
            raise ConfigError(
                f"target_patience: expected seconds from 0 to 86,400, found {patience!r}"
            )
        if data.get("targets") is None:
            if data.get("devices") is not None:
                raise ConfigError(
                    "devices: say under targets which of them to measure on, such as targets: [all]"
                )
            return cls(patience=float(patience))
        words = [
            parse_text(word, f"targets.{place}")
            for place, word in enumerate(list_of(data, "targets"))
        ]
        fleet = _parse_fleet(data.get("devices", str(USUAL)))
        return cls(fleet.find_devices(words), fleet.currency, fleet.leases, float(patience))


def _parse_fleet(given: Any) -> Fleet:
    if isinstance(given, str):
        return read_devices(Path(given))
    try:
        return parse_fleet({"devices": given} if isinstance(given, list) else given)
    except NNPipeError as error:
        text = str(error)
        raise type(error)(text if text.startswith("devices") else f"devices.{text}") from None


C = TypeVar("C", bound=Component)

CONFIRMATIONS = 5  # the default number of candidates that are measured again at most
_FASTEST = "latency_median"
_KEYS = (
    "title",
    "output",
    "dataset",
    "calibration_samples",
    "measure",
    "verify",
    "models",
    "as_trained",
    "compilers",
    "runtimes",
    "threads",
    "batch_sizes",
    "time_limit",
    "constraints",
    "objectives",
    "choose",
    "confirmations",
    "accept_doubts",
    "confidence",
    "seed",
    "budget",
    *TARGET_KEYS,
)
_MODEL_KEYS = ("title", "class", "arguments", "path", "training")


@dataclass(frozen=True)
class Sweep:
    """A whole sweep; ``impossible`` has the reason, by title, why a combination is not possible.

    Without ``objectives`` of its own they follow from the task of the data: see :meth:`with_task`.
    With ``trained_competes`` false, models as trained are only there so that losses can be told.
    """

    title: str
    output: Path
    dataset: Dataset
    calibration_samples: int
    verify: VerifyOptions
    models: tuple[Model, ...]
    points: tuple[Point, ...]
    impossible: Mapping[str, str]
    constraints: tuple[MetricConstraint, ...]
    objectives: tuple[Quantity, ...]
    choose: Quantity
    confirmations: int
    accept_doubts: tuple[str, ...]
    confidence: float
    seed: int
    time_limit: float
    budget: SweepBudget | None = None
    trained_competes: bool = True
    targets: Targets = field(default_factory=Targets)

    def on(self, device: Device) -> Sweep:
        """Return the part of the sweep that decides about a device: its points, and the models as
        trained.

        Models as trained compete on this machine only; elsewhere, losses are told against them.
        """
        own = tuple(each for each in self.points if each.device == device or each.runtime is None)
        return replace(self, points=own, trained_competes=self.trained_competes and device.here)

    @property
    def rule(self) -> DecisionRule:
        """The rule by which its candidates are judged and the best is chosen."""
        accepted = frozenset(self.accept_doubts)
        return DecisionRule(self.constraints, self.choose, self.confidence, accepted)

    def can_be_chosen(self, point: Point) -> bool:
        """Return whether a point may be chosen; models as trained may be there for comparison
        only.
        """
        return self.trained_competes or point.runtime is not None

    @property
    def metrics(self) -> tuple[Quantity, ...]:
        """All metrics by which candidates are judged, each once."""
        wanted = (
            *self.objectives,
            self.choose,
            *(constraint.metric for constraint in self.constraints),
        )
        return tuple({each.name: each for each in wanted}.values())

    def with_task(self, task: Task) -> Sweep:
        """Return the sweep for data of a task: without objectives of its own it has the task's
        first metric as one.

        Raises
        ------
        ConfigError
            If candidates are to be judged by a metric that the task does not have.
        """
        known = [metric.name for metric in task.metrics]
        for each in self.metrics:
            if each.metric and each.metric not in known:
                raise ConfigError(
                    f"{each.name}: the task of the data, {task.name}, has no metric "
                    f"{each.metric!r}; there are: {', '.join(known)}"
                )
        objectives = self.objectives or tuple(
            map(get_metric_quantity, (_FASTEST, task.primary.name, "size"))
        )
        return replace(self, objectives=objectives)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Sweep:
        """Return the sweep of these settings.

        Raises
        ------
        NNPipeError
            If a setting is wrong; the message names its place in the file.
        """
        data = check_keys(dict(settings), _KEYS, "sweep", ("dataset", "models", "runtimes"))
        output = Path(parse_text(data.get("output", "build/sweep"), "output"))
        models = tuple(
            parse_model_entry(entry, f"models.{i}", output)
            for i, entry in enumerate(list_of(data, "models"))
        )
        _check_titles([model.title for model in models])
        measure = build_component(MeasureOptions, get_section(data, "measure"), "measure")
        chains = tuple(iter_chains(data))
        runtimes = tuple(iter_runtimes(data))
        sizes = [
            count_of(size, f"batch_sizes.{i}")
            for i, size in enumerate(list_of(data, "batch_sizes", [1]))
        ]
        measures = [replace(measure, inference_batch_size=size) for size in sizes]
        targets = Targets.from_settings(data)
        points, impossible = build_combinations(
            models,
            chains,
            runtimes,
            measures,
            targets.devices,
            _parse_flag(data, "as_trained", True),
        )
        constraints = parse_constraints(data)
        named_objectives = [] if data.get("objectives") is None else list_of(data, "objectives")
        objectives = tuple(
            parse_metric(name, f"objectives.{i}") for i, name in enumerate(named_objectives)
        )
        choose = parse_metric(
            data.get("choose", objectives[0].name if objectives else _FASTEST), "choose"
        )
        judged = {metric.name for metric in (*objectives, choose, *(c.metric for c in constraints))}
        check_sources(
            judged,
            {p.model.title for p in points} - {p.model.title for p in points if p.runtime is None},
        )
        return cls(
            title=parse_text(data.get("title", "Sweep"), "title"),
            output=output,
            dataset=parse_component(data["dataset"], Dataset, "dataset"),
            calibration_samples=count_of(
                data.get("calibration_samples", 128), "calibration_samples"
            ),
            verify=build_component(VerifyOptions, get_section(data, "verify"), "verify"),
            models=models,
            points=points,
            impossible=impossible,
            constraints=constraints,
            objectives=objectives,
            choose=choose,
            confirmations=count_of(data.get("confirmations", CONFIRMATIONS), "confirmations"),
            accept_doubts=parse_accepted_doubts(list_of(data, "accept_doubts", [])),
            confidence=parse_confidence(data.get("confidence", 0.95)),
            seed=parse_seed(data.get("seed", 0)),
            time_limit=build_component(
                LimitOptions, {k: data[k] for k in ("time_limit",) if k in data}, "sweep"
            ).time_limit,
            budget=None if data.get("budget") is None else SweepBudget.parse(data["budget"]),
            targets=targets,
        )


def parse_model_entry(entry: Any, where: str, output: Path) -> Model:
    """Return the model of an entry; what is trained is written into ``output``."""
    data = check_keys(entry, _MODEL_KEYS, where, ("class",))
    name = parse_text(data["class"], where).rpartition(".")[2]
    title = parse_text(data.get("title", name), f"{where}.title")
    wrapper, path = parse_model(data, output / "trained" / make_file_name(title), where)
    training = data.get("training")
    options = (
        None
        if training is None
        else build_component(TrainingOptions, training, f"{where}.training")
    )
    return Model(title, wrapper, path, options, makes_weights(wrapper, data))


def _parse_flag(data: Mapping[str, Any], key: str, default: bool) -> bool:
    found = data.get(key, default)
    if not isinstance(found, bool):
        raise ConfigError(f"{key}: expected true or false, found {found!r}")
    return found


def _check_titles(titles: Sequence[str]) -> None:
    for title, count in Counter(titles).items():
        if count > 1:
            raise ConfigError(f"models: two are called {title!r}; give each a title of its own")
