"""The content of a pipeline file, checked completely before anything slow begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.batching import set_batch_size, set_batch_sizes
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
from nnpipe.report.render import list_report_types
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.candidates.stages import check_plan
from nnpipe.workflows.pipeline.entries import (
    build_component,
    count_of,
    get_section,
    makes_weights,
    parse_component,
    parse_model,
    parse_text,
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
        output = Path(parse_text(data.get("output", "build"), "output"))
        report = check_keys(get_section(data, "report"), ("types",), "report")
        measure = build_component(MeasureOptions, get_section(data, "measure"), "measure")
        load = build_component(LoadOptions, get_section(data, "load"), "load")
        measure.check_with(load)
        return cls(
            title=parse_text(data.get("title", "Benchmark"), "title"),
            output=output,
            dataset=parse_component(data["dataset"], Dataset, "dataset"),
            models=tuple(
                _set_batch_size(model, measure, load)
                for model in _parse_models(data, output, refused)
            ),
            measure=measure,
            load=load,
            verify=build_component(VerifyOptions, get_section(data, "verify"), "verify"),
            time_limit=build_component(
                LimitOptions, _select_key(data, "time_limit"), "pipeline"
            ).time_limit,
            calibration_samples=count_of(
                data.get("calibration_samples", 128), "calibration_samples"
            ),
            report_types=_parse_report_types(report.get("types")),
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


def _parse_models(
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
            _parse_model_settings(
                data["model"], "model", output / "model", list(enumerate(entries)), refused
            ),
        )
    given = data["models"]
    if not isinstance(given, list) or not given:
        raise ConfigError("models: expected a list with at least one entry")
    given = [
        check_keys(model, _MODEL_KEYS, f"models.{i}", ("title", "class"))
        for i, model in enumerate(given)
    ]
    titles = [parse_text(model["title"], f"models.{i}.title") for i, model in enumerate(given)]
    _check_titles(titles, "models")
    _check_titles([make_file_name(title) for title in titles], "models")
    wanted = [_parse_titles(entry, f"candidates.{i}", titles) for i, entry in enumerate(entries)]
    found = []
    for number, (title, model) in enumerate(zip(titles, given, strict=True)):
        own = [(place, entry) for place, entry in enumerate(entries) if title in wanted[place]]
        found.append(
            _parse_model_settings(
                model, f"models.{number}", output / make_file_name(title), own, refused
            )
        )
    return tuple(found)


def _set_batch_size(
    model: ModelSettings, measure: MeasureOptions, load: LoadOptions
) -> ModelSettings:
    """Return a model whose compilers and runtimes are set to the number of samples in a call."""
    size = call_size(load, None, measure.inference_batch_size)

    def fit_candidate(settings: CandidateSettings) -> CandidateSettings:
        runtime = None if settings.runtime is None else set_batch_size(settings.runtime, size)
        return replace(
            settings, compilers=set_batch_sizes(settings.compilers, size), runtime=runtime
        )

    return replace(model, candidates=tuple(map(fit_candidate, model.candidates)))


def _check_titles(titles: Sequence[str], where: str) -> None:
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(f"{where}: two are called {title!r}; give each a title of its own")


def _parse_titles(entry: Mapping[str, Any], where: str, known: Sequence[str]) -> Sequence[str]:
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


def _parse_model_settings(
    data: Any,
    where: str,
    default: Path,
    entries: Sequence[tuple[int, Mapping[str, Any]]],
    refused: list[ImpossibleCandidate] | None,
) -> ModelSettings:
    model = check_keys(data, _MODEL_KEYS, where, ("class",))
    title = parse_text(model["title"], f"{where}.title") if "title" in model else ""
    wrapper, path = parse_model(model, default, where)
    training = model.get("training")
    candidates = tuple(_parse_candidates(entries, wrapper, title, refused))
    _check_titles([candidate.title for candidate in candidates], "candidates")
    return ModelSettings(
        title,
        wrapper,
        path,
        None
        if training is None
        else build_component(TrainingOptions, training, f"{where}.training"),
        makes_weights(wrapper, model),
        candidates,
    )


def _parse_candidates(
    entries: Sequence[tuple[int, Mapping[str, Any]]],
    wrapper: ModelWrapper,
    model: str,
    refused: list[ImpossibleCandidate] | None,
) -> Iterator[CandidateSettings]:
    for number, entry in entries:
        where = f"candidates.{number}"
        title = f"{model}: " * bool(model) + parse_text(entry["title"], f"{where}.title")
        try:
            yield _parse_candidate(entry, where, wrapper, title)
        except NNPipeError as error:
            if refused is None:
                raise
            refused.append(
                ImpossibleCandidate(title, str(error).removeprefix(f"{where} ({title}): "))
            )


def _parse_candidate(
    data: Mapping[str, Any], where: str, wrapper: ModelWrapper, title: str
) -> CandidateSettings:
    given = [] if data.get("compilers") is None else data["compilers"]
    if not isinstance(given, list):
        raise ConfigError(f"{where}.compilers: expected a list")
    compilers = tuple(
        parse_component(item, ModelCompiler, f"{where}.compilers.{i}")
        for i, item in enumerate(given)
    )
    limit = (
        build_component(LimitOptions, _select_key(data, "time_limit"), where).time_limit
        if "time_limit" in data
        else None
    )
    if data.get("runtime") is None:
        if compilers or data.get("export"):
            raise ConfigError(f"{where}: a compiled model needs a runtime")
        if data.get("protocol") is not None:
            raise ConfigError(f"{where}: a target needs a runtime")
        return CandidateSettings(title, (), None, None, time_limit=limit)
    runtime = parse_component(data["runtime"], Runtime, f"{where}.runtime")
    deployment = _parse_deployment(data, where)
    here = deployment is None or deployment.serve
    try:
        way = check_plan(wrapper, compilers, runtime, data.get("export"), remote=not here)
    except NNPipeError as error:
        raise type(error)(f"{where} ({title}): {error}") from None
    return CandidateSettings(title, compilers, runtime, way, deployment, limit)


def _parse_deployment(data: Mapping[str, Any], where: str) -> Deployment | None:
    serve = data.get("serve", False)
    if not isinstance(serve, bool):
        raise ConfigError(f"{where}.serve: expected true or false, found {serve!r}")
    if data.get("protocol") is None:
        if serve or data.get("remote") is not None:
            raise ConfigError(f"{where}: name the way to the target: protocol")
        return None
    protocol = parse_component(data["protocol"], RuntimeProtocol, f"{where}.protocol")
    protocol.check_installed()
    return Deployment(
        protocol,
        build_component(RemoteOptions, get_section(data, "remote"), f"{where}.remote"),
        serve,
    )


def _select_key(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: data[key]} if key in data else {}


def _parse_report_types(given: Any) -> tuple[str, ...] | None:
    if given is None:  # all types for which there are results
        return None
    known = list_report_types()
    if not isinstance(given, list) or any(name not in known for name in given):
        raise ConfigError(f"report.types: expected a list of {', '.join(known)}, found {given!r}")
    return tuple(given)


def make_file_name(title: str) -> str:
    """Return a title as the name of a file."""
    return (
        "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split())
        or "candidate"
    )
