"""A model of which a search chooses how the weights of each layer are stored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.compilers.layer_forms import LayerForm
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.quantities import degradation_of
from nnpipe.searching.objectives import Limit, Objectives
from nnpipe.searching.parameters import DiscreteParameter, SearchParameter
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial, TrialResult
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.compression.compressing import Compressing, list_tradeoffs
from nnpipe.workflows.journal import compute_digest
from nnpipe.workflows.pipeline.entries import (
    build_component,
    count_of,
    get_section,
    parse_component,
    parse_text,
)
from nnpipe.workflows.search.measured_subject import MeasuredSubject, SearchChoice
from nnpipe.workflows.sweep.file import parse_model_entry
from nnpipe.workflows.sweep.grid import list_of
from nnpipe.workflows.sweep.points import Model
from nnpipe.workflows.sweep.sweep import run_sweep
from nnpipe.workflows.sweep.sweep_result import SweepResult
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import acquire_turn

ACTIVATIONS = ("int8", "float")
FORMS = (
    "as-it-is",
    "float16",
    "int8",
    "int7",
    "int6",
    "cluster32",
    "cluster16",
    "prune50+cluster16",
    "cluster8",
)
"""The forms of layers that are searched by default, from the most bytes to the fewest."""
KEYS = (
    "compress",
    "dataset",
    "activations",
    "forms",
    "measure",
    "verify",
    "calibration_samples",
    "search_samples",
    "time_limit",
    "output",
)
"""The keys of a search file that belong to a model to compress."""
OTHERS = "others"
"""The parameter that stands for all small layers."""

_SMALL = 0.02  # of all weights: layers below share one parameter
_PREDICTED = 16  # configurations to begin with
_ACTIVATIONS = "activations"


class SearchedCompression(MeasuredSubject):
    """A trained model of which each layer's weights get a form of their own.

    Parameters
    ----------
    model
        The model.
    dataset
        Its data.
    choice
        What trials are judged by.
    settings
        The content of the search file, for its other keys.

    Raises
    ------
    ConfigError
        If a setting is wrong; the message names its place in the file.
    """

    def __init__(
        self, model: Model, dataset: Dataset, choice: SearchChoice, settings: Mapping[str, Any]
    ) -> None:
        self.choice, self.output = (
            choice,
            Path(parse_text(settings.get("output", "build/search"), "output")),
        )
        self._activations = _parse_activations(settings)
        self._forms = _parse_forms(settings)
        self._verify = build_component(VerifyOptions, get_section(settings, "verify"), "verify")
        limits = {key: settings[key] for key in ("time_limit",) if key in settings}
        self._compressing = Compressing(
            model,
            dataset,
            self.output,
            build_component(MeasureOptions, get_section(settings, "measure"), "measure"),
            count_of(settings.get("calibration_samples", 128), "calibration_samples"),
            count_of(settings.get("search_samples", 1000), "search_samples"),
            build_component(LimitOptions, limits, "search").time_limit,
        )
        self._lost = degradation_of(dataset.task.primary)
        self._names: dict[str, tuple[str, ...]] = {}
        for metric in choice.objectives:
            if metric.name not in ("size", "latency_median") and metric.metric != self._lost.metric:
                raise ConfigError(
                    f"objectives: a trial tells size, latency_median, {self._lost.metric} and "
                    f"{self._lost.name}, not {metric.name}; a constraint on it is judged at the end"
                )
        if choice.choose.name not in self.objectives().measured:
            raise ConfigError(f"choose: {choice.choose.name} is no objective; add it to objectives")

    @classmethod
    def from_settings(
        cls, data: Mapping[str, Any], constraints: Sequence[str]
    ) -> SearchedCompression:
        """Return the subject of a search file, given those of its constraints that are on
        metrics.
        """
        entry = data["compress"]
        check_keys(
            entry, ("title", "class", "arguments", "path", "training"), "compress", ("class",)
        )
        if data.get("dataset") is None:
            raise ConfigError("dataset: a model is compressed with samples; name a data set")
        dataset = parse_component(data["dataset"], Dataset, "dataset")
        output = Path(parse_text(data.get("output", "build/search"), "output"))
        choice = SearchChoice.from_settings(data, constraints, ("size",))
        return cls(
            parse_model_entry(entry, "compress", output), prepare_dataset(dataset), choice, data
        )

    def space(self) -> SearchSpace:
        """Return the space: a form for each layer, and whether activations are integers.

        The model is exported for that, unless this has been done.
        """
        sizes = self._compressing.layers(self._activations[0])
        small = [name for name, size in sizes.items() if size < _SMALL * sum(sizes.values())]
        large = [name for name in sizes if name not in small]
        self._names = {
            key: (name,) for key, name in zip(_make_parameter_names(large), large, strict=True)
        }
        if small:
            self._names[OTHERS] = tuple(small)
        found: dict[str, SearchParameter] = {}
        if len(self._activations) > 1:
            found[_ACTIVATIONS] = DiscreteParameter(self._activations)
        return SearchSpace(
            found | dict.fromkeys(self._names, DiscreteParameter(self._forms, ordered=True))
        )

    def objectives(self) -> Objectives:
        """Return the objectives, with limits within which the final measurements can prove the
        constraints.
        """
        limits = []
        for each in self.choice.constraints:
            name = each.metric.name
            if each.metric.compared and each.metric.metric == self._lost.metric:
                limits.append(Limit(_format_bound_name(name), each.bound))
            elif name in ("size", "latency_median"):
                limits.append(Limit(name, each.bound, each.at_most))
        return self.choice.build_objectives(limits)

    def first(self) -> Sequence[Mapping[str, Any]]:
        """Return the configurations that promise most by bytes and noise alone, and those of one
        form for all.
        """
        found: list[Mapping[str, Any]] = []
        for activations in self._activations:
            costs = self._compressing.compute_costs(activations, self._names, self._forms)
            chosen = list_tradeoffs(costs, _PREDICTED // len(self._activations))
            chosen += [
                dict.fromkeys(self._names, form)
                for form in self._forms
                if LayerForm.parse(form).levels == "grid"
            ]
            found += [{**self._make_activation_setting(activations), **each} for each in chosen]
        return found

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Do nothing: both come from here."""

    def check_elsewhere(self) -> None:
        """Raise :class:`ConfigError` if the model is trained here: every machine would compress
        another one.
        """
        if self._compressing.model.training is not None:
            raise ConfigError(
                "compress.training: workers on other machines compress a trained model; train it "
                "before, give its path, and send the file with --send"
            )

    def close(self) -> None:
        """End the process in which trials are carried out."""
        self._compressing.close()

    def prepare_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Make the file of a trial unless that has been done; return it with its description."""
        with acquire_turn(self.turns):
            made = self._compressing.make_trial_model(
                trial.number, self._get_activations(arguments), self._make_layer_options(arguments)
            )
        return made.path, get_sidecar_path(made.path)

    def measure_trial(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> TrialResult:
        """Make the file, and tell its bytes, its time, and its loss on samples of the search."""
        path, _ = self.prepare_trial(trial, arguments)
        with acquire_turn(self.turns, alone=True):
            found = self._compressing.evaluate_model(
                Artifact.read(path), self._get_activations(arguments)
            )
        half = found["high"] - found["loss"]
        # What the interval of the test split would be, which has another number of samples.
        reaches = found["loss"] + half * math.sqrt(found["samples"] / found["test_samples"])
        primary = self._lost.metric
        values = {
            "size": found["size"],
            "latency_median": found["seconds"],
            primary: found["value"],
        }
        intervals = {"latency_median": tuple(found["seconds_between"])}
        for name in (self._lost.name, f"{primary}_loss"):
            values |= {name: found["loss"], _format_bound_name(name): reaches}
            intervals[name] = (found["low"], found["high"])
        return TrialResult(values, intervals)

    def to_json(self) -> dict[str, Any]:
        """Return the model and the forms."""
        return {
            "compress": compute_digest(
                [self._compressing.describe(), self._forms, self._activations]
            )
        }

    @property
    def facts(self) -> dict[str, str]:
        """The model, what is tried, and what is required."""
        forms, kinds = ", ".join(self._forms), ", ".join(self._activations)
        return {
            "Model": self._compressing.model.title,
            "Forms": forms,
            "Activations": kinds,
            **self.choice.facts,
        }

    @property
    def final_output(self) -> Path:
        """A folder beside those of the trials."""
        return self.output / "final"

    def measure_finalists(
        self,
        trials: Sequence[SearchTrial],
        arguments: Mapping[int, Mapping[str, Any]],
        seed: int,
        command: Sequence[str],
        *,
        only_known: bool = False,
    ) -> SweepResult | None:
        """Measure the best trials on the test split, beside the model as trained and with 8 bits
        everywhere.
        """
        objectives, name = self.objectives(), self.choice.choose.name
        sign = 1 if self.choice.choose.less_is_better else -1
        good = [each for each in trials if objectives.keeps(each) and name in each.values]
        if not good:
            return None
        good.sort(key=lambda trial: (sign * trial.values[name], trial.number))
        points = [self._compressing.as_trained(), self._compressing.build_uniform_point()]
        for trial in select_finalists(good, objectives, self.choice.confirmations):
            given = arguments[trial.number]
            points.append(
                self._compressing.build_point(
                    f"trial {trial.number}",
                    self._get_activations(given),
                    self._make_layer_options(given),
                )
            )
        sweep = self.choice.sweep(
            f"{self._compressing.model.title}, compressed",
            self.final_output,
            self._compressing.dataset,
            (self._compressing.model,),
            points,
            calibration_samples=self._compressing.calibration_samples,
            verify=self._verify,
            time_limit=self._compressing.time_limit,
            seed=seed,
            budget=self.choice.budget,
        )
        with acquire_turn(self.turns, alone=True):
            return run_sweep(sweep, command, only_known=only_known)

    def _make_activation_setting(self, activations: str) -> dict[str, str]:
        return {_ACTIVATIONS: activations} if len(self._activations) > 1 else {}

    def _get_activations(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments.get(_ACTIVATIONS, self._activations[0]))

    def _make_layer_options(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the compressor is told."""
        return tuple(
            f"{name}={arguments[parameter]}"
            for parameter, names in self._names.items()
            for name in names
        )


def select_finalists(
    trials: Sequence[SearchTrial], objectives: Objectives, count: int
) -> list[SearchTrial]:
    """Return at most ``count`` trials to measure in full, from the best to the safest.

    Samples of the search tell only roughly what the test split will prove.  So of those trials that
    are further within the limits than every better one, some are taken evenly.

    Parameters
    ----------
    trials
        Those that keep the limits, the best first.
    objectives
        The objectives, with the limits.
    count
        How many to return at most.
    """
    front: list[SearchTrial] = []
    for trial in trials:
        excess = max(objectives.compute_excesses(trial.values), default=0.0)
        if not front or excess < max(objectives.compute_excesses(front[-1].values), default=0.0):
            front.append(trial)
    if len(front) <= count:
        return front
    steps = max(count - 1, 1)
    return [front[round(place * (len(front) - 1) / steps)] for place in range(count)]


def _format_bound_name(name: str) -> str:
    return f"{name} at most"


def _make_parameter_names(names: Sequence[str]) -> list[str]:
    """Return names of parameters for layers: without what all of them begin with, and with
    letters and digits alone.
    """
    parts = [re.split(r"[/.]", name) for name in names]
    same = 0
    while all(len(each) > same + 1 for each in parts) and len({each[same] for each in parts}) == 1:
        same += 1
    found: list[str] = []
    for number, each in enumerate(parts):
        word = re.sub(r"\W+", "_", "_".join(each[same:])).strip("_")
        word = word if re.match(r"[^\W\d]", word) else f"layer_{word or number}"
        found.append(
            word if word not in found and word not in (OTHERS, _ACTIVATIONS) else f"{word}_{number}"
        )
    return found


def _parse_activations(settings: Mapping[str, Any]) -> tuple[str, ...]:
    given = list_of(settings, "activations", list(ACTIVATIONS))
    if not given or len(set(given)) < len(given) or not set(given) <= set(ACTIVATIONS):
        raise ConfigError(
            f"activations: expected a list of {' and '.join(ACTIVATIONS)}, found {given!r}"
        )
    return tuple(given)


def _parse_forms(settings: Mapping[str, Any]) -> tuple[str, ...]:
    given = list_of(settings, "forms", list(FORMS))
    for place, form in enumerate(given):
        try:
            LayerForm.parse(parse_text(form, f"forms.{place}"))
        except ConfigError as error:
            raise ConfigError(f"forms.{place}: {error}") from None
    if len(given) < 2 or len(set(given)) < len(given):
        raise ConfigError("forms: expected a list of at least two different forms")
    return tuple(given)
