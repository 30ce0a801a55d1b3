"""The content of a pipeline file, checked completely before anything slow begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.batching import all_for_batch, for_batch
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.core.training import TrainingOptions
from nnpipe.experiment.settings import check_keys
from nnpipe.measuring.load_options import LoadOptions, call_size
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.report.render import known_report_types
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.candidates.stages import check_plan
from nnpipe.workflows.pipeline.entries import (
    component_of,
    count_of,
    made_of,
    makes_weights,
    model_of,
    part_of,
    text_of,
)
from nnpipe.workflows.verification.compare_outputs import VerifyOptions


@dataclass(frozen=True)
class CandidateSettings:
    """One way to run the model; without a runtime, in its own framework."""

    title: str
    compilers: tuple[ModelCompiler, ...]
    runtime: Runtime | None
    way: Plan | None
    deployment: Deployment | None = None
    time_limit: float | None = None


@dataclass(frozen=True)
class ImpossibleCandidate:
    """A candidate that would not work, and the cause."""

    title: str
    cause: str


@dataclass(frozen=True)
class ModelSettings:
    """A model, the path of its weights, and the ways to run it; the title of an only model may be
    empty.

    With ``makes_weights``, its arguments say where its weights come from, and they are written to
    the path.
    """

    title: str
    wrapper: ModelWrapper
    path: Path
    training: TrainingOptions | None
    makes_weights: bool
    candidates: tuple[CandidateSettings, ...]


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline: train, compile in several ways, measure each, report."""

    title: str
    output: Path
    dataset: Dataset
    models: tuple[ModelSettings, ...]
    measure: MeasureOptions
    load: LoadOptions
    verify: VerifyOptions
    time_limit: float
    calibration_samples: int
    report_types: tuple[str, ...] | None

    @property
    def count(self) -> int:
        """The number of candidates of all models."""
        return sum(len(model.candidates) for model in self.models)

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, Any], refused: list[ImpossibleCandidate] | None = None
    ) -> Pipeline:
        """Return the pipeline of these settings.

        With ``refused``, candidates that cannot be made are added to it and left out of the
        pipeline.

        Raises
        ------
        NNPipeError
            If a setting is wrong; the message names its place in the file.
        """
        data = check_keys(dict(settings), _KEYS, "pipeline", ("dataset", "candidates"))
        output = Path(text_of(data.get("output", "build"), "output"))
        report = check_keys(part_of(data, "report"), ("types",), "report")
        measure = made_of(MeasureOptions, part_of(data, "measure"), "measure")
        load = made_of(LoadOptions, part_of(data, "load"), "load")
        measure.check_with(load)
        return cls(
            title=text_of(data.get("title", "Benchmark"), "title"),
            output=output,
            dataset=component_of(data["dataset"], Dataset, "dataset"),
            models=tuple(
                _for_calls(model, measure, load) for model in _models(data, output, refused)
            ),
            measure=measure,
            load=load,
            verify=made_of(VerifyOptions, part_of(data, "verify"), "verify"),
            time_limit=made_of(LimitOptions, _only(data, "time_limit"), "pipeline").time_limit,
            calibration_samples=count_of(
                data.get("calibration_samples", 128), "calibration_samples"
            ),
            report_types=_types(report.get("types")),
        )


_KEYS = (
    "title",
    "output",
    "dataset",
    "model",
    "models",
    "calibration_samples",
    "measure",
    "load",
    "verify",
    "time_limit",
    "candidates",
    "report",
)
_MODEL_KEYS = ("title", "class", "arguments", "path", "training")
_CANDIDATE_KEYS = (
    "title",
    "models",
    "export",
    "compilers",
    "runtime",
    "protocol",
    "remote",
    "serve",
    "time_limit",
)


def _models(
    data: Mapping[str, Any], output: Path, refused: list[ImpossibleCandidate] | None
) -> tuple[ModelSettings, ...]:
    """Return the models, each with its candidates."""
    if ("model" in data) == ("models" in data):
        raise ConfigError(
            "pipeline: give either model, or models: a list of them, each with a title"
        )
    entries = data["candidates"]
    if not isinstance(entries, list) or not entries:
        raise ConfigError("candidates: expected a list with at least one entry")
    entries = [
        check_keys(entry, _CANDIDATE_KEYS, f"candidates.{i}", ("title",))
        for i, entry in enumerate(entries)
    ]
    if "model" in data:
        for number, entry in enumerate(entries):
            if "models" in entry:
                raise ConfigError(
                    f"candidates.{number}.models: there is only one model; leave it out"
                )
        return (
            _model(data["model"], "model", output / "model", list(enumerate(entries)), refused),
        )
    given = data["models"]
    if not isinstance(given, list) or not given:
        raise ConfigError("models: expected a list with at least one entry")
    given = [
        check_keys(model, _MODEL_KEYS, f"models.{i}", ("title", "class"))
        for i, model in enumerate(given)
    ]
    titles = [text_of(model["title"], f"models.{i}.title") for i, model in enumerate(given)]
    _check_titles(titles, "models")
    _check_titles([file_name(title) for title in titles], "models")
    wanted = [_titles_of(entry, f"candidates.{i}", titles) for i, entry in enumerate(entries)]
    found = []
    for number, (title, model) in enumerate(zip(titles, given, strict=True)):
        own = [(place, entry) for place, entry in enumerate(entries) if title in wanted[place]]
        found.append(_model(model, f"models.{number}", output / file_name(title), own, refused))
    return tuple(found)


def _for_calls(model: ModelSettings, measure: MeasureOptions, load: LoadOptions) -> ModelSettings:
    """Return a model whose compilers and runtimes are set to the number of samples in a call."""
    size = call_size(load, None, measure.inference_batch_size)

    def fitted(settings: CandidateSettings) -> CandidateSettings:
        runtime = None if settings.runtime is None else for_batch(settings.runtime, size)
        return replace(settings, compilers=all_for_batch(settings.compilers, size), runtime=runtime)

    return replace(model, candidates=tuple(map(fitted, model.candidates)))


def _check_titles(titles: Sequence[str], where: str) -> None:
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(f"{where}: two are called {title!r}; give each a title of its own")


def _titles_of(entry: Mapping[str, Any], where: str, known: Sequence[str]) -> Sequence[str]:
    """Return the titles of a candidate's models."""
    named = entry.get("models")
    if named is None:
        return known
    if not isinstance(named, list) or not named:
        raise ConfigError(
            f"{where}.models: expected a list of titles of models; left out, it is for all"
        )
    for title in named:
        if title not in known:
            raise ConfigError(
                f"{where}.models: no model is called {title!r}; there are {', '.join(known)}"
            )
    return named


def _model(
    data: Any,
    where: str,
    default: Path,
    entries: Sequence[tuple[int, Mapping[str, Any]]],
    refused: list[ImpossibleCandidate] | None,
) -> ModelSettings:
    model = check_keys(data, _MODEL_KEYS, where, ("class",))
    title = text_of(model["title"], f"{where}.title") if "title" in model else ""
    wrapper, path = model_of(model, default, where)
    training = model.get("training")
    candidates = tuple(_candidates(entries, wrapper, title, refused))
    _check_titles([candidate.title for candidate in candidates], "candidates")
    return ModelSettings(
        title,
        wrapper,
        path,
        None if training is None else made_of(TrainingOptions, training, f"{where}.training"),
        makes_weights(wrapper, model),
        candidates,
    )


def _candidates(
    entries: Sequence[tuple[int, Mapping[str, Any]]],
    wrapper: ModelWrapper,
    model: str,
    refused: list[ImpossibleCandidate] | None,
) -> Iterator[CandidateSettings]:
    for number, entry in entries:
        where = f"candidates.{number}"
        title = f"{model}: " * bool(model) + text_of(entry["title"], f"{where}.title")
        try:
            yield _candidate(entry, where, wrapper, title)
        except NNPipeError as error:
            if refused is None:
                raise
            refused.append(
                ImpossibleCandidate(title, str(error).removeprefix(f"{where} ({title}): "))
            )


def _candidate(
    data: Mapping[str, Any], where: str, wrapper: ModelWrapper, title: str
) -> CandidateSettings:
    given = [] if data.get("compilers") is None else data["compilers"]
    if not isinstance(given, list):
        raise ConfigError(f"{where}.compilers: expected a list")
    compilers = tuple(
        component_of(item, ModelCompiler, f"{where}.compilers.{i}") for i, item in enumerate(given)
    )
    limit = (
        made_of(LimitOptions, _only(data, "time_limit"), where).time_limit
        if "time_limit" in data
        else None
    )
    if data.get("runtime") is None:
        if compilers or data.get("export"):
            raise ConfigError(f"{where}: a compiled model needs a runtime")
        if data.get("protocol") is not None:
            raise ConfigError(f"{where}: a target needs a runtime")
        return CandidateSettings(title, (), None, None, time_limit=limit)
    runtime = component_of(data["runtime"], Runtime, f"{where}.runtime")
    deployment = _deployment(data, where)
    here = deployment is None or deployment.serve
    try:
        way = check_plan(wrapper, compilers, runtime, data.get("export"), remote=not here)
    except NNPipeError as error:
        raise type(error)(f"{where} ({title}): {error}") from None
    return CandidateSettings(title, compilers, runtime, way, deployment, limit)


def _deployment(data: Mapping[str, Any], where: str) -> Deployment | None:
    serve = data.get("serve", False)
    if not isinstance(serve, bool):
        raise ConfigError(f"{where}.serve: expected true or false, found {serve!r}")
    if data.get("protocol") is None:
        if serve or data.get("remote") is not None:
            raise ConfigError(f"{where}: name the way to the target: protocol")
        return None
    protocol = component_of(data["protocol"], RuntimeProtocol, f"{where}.protocol")
    protocol.check_installed()
    return Deployment(
        protocol, made_of(RemoteOptions, part_of(data, "remote"), f"{where}.remote"), serve
    )


def _only(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: data[key]} if key in data else {}


def _types(given: Any) -> tuple[str, ...] | None:
    if given is None:  # all types for which there are results
        return None
    known = known_report_types()
    if not isinstance(given, list) or any(name not in known for name in given):
        raise ConfigError(f"report.types: expected a list of {', '.join(known)}, found {given!r}")
    return tuple(given)


def file_name(title: str) -> str:
    """Return a title as the name of a file."""
    return (
        "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split())
        or "candidate"
    )
