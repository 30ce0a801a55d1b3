"""What a pipeline file says, checked as a whole before anything slow begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.arguments import arguments_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtimeprotocol import RuntimeProtocol
from nnpipe.core.training import TrainingOptions
from nnpipe.measure.benchmark import MeasureOptions
from nnpipe.scenarios._deploying import Deployment
from nnpipe.scenarios._entries import PATH, component_of, count_of, made_of, model_of, text_of
from nnpipe.scenarios._pipeline import check_plan
from nnpipe.scenarios._settings import check_keys
from nnpipe.scenarios._source import LimitOptions
from nnpipe.scenarios._verifying import VerifyOptions

C = TypeVar("C", bound=Component)
REPORT_TYPES = ("performance", "classification")


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
class Pipeline:
    """A whole pipeline: train, compile in several ways, measure each, report."""

    title: str
    output: Path
    dataset: Dataset
    wrapper: ModelWrapper
    model_path: Path
    training: TrainingOptions | None
    measure: MeasureOptions
    verify: VerifyOptions
    time_limit: float
    calibration_samples: int
    candidates: tuple[CandidateSettings, ...]
    report_types: tuple[str, ...] | None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Pipeline:
        """Make the pipeline, or say in one line what is wrong and where.

        Raises
        ------
        NNPipeError
            Naming the place in the file.
        """
        data = check_keys(dict(settings), _KEYS, "pipeline", ("dataset", "model", "candidates"))
        model = check_keys(data["model"], ("class", "arguments", "path", "training"), "model", ("class",))
        output = Path(text_of(data.get("output", "build"), "output"))
        wrapper, model_path = model_of(model, output / "model")
        training = model.get("training")
        entries = data["candidates"]
        if not isinstance(entries, list) or not entries:
            raise ConfigError("candidates: expected a list with at least one entry")
        candidates = tuple(_candidate(entry, f"candidates.{i}", wrapper) for i, entry in enumerate(entries))
        titles = [candidate.title for candidate in candidates]
        for title in titles:
            if titles.count(title) > 1:
                raise ConfigError(f"candidates: two are called {title!r}; give each a title of its own")
        report = check_keys(data.get("report") or {}, ("types",), "report")
        return cls(
            title=text_of(data.get("title", "Benchmark"), "title"),
            output=output,
            dataset=component_of(data["dataset"], Dataset, "dataset"),
            wrapper=wrapper,
            model_path=model_path,
            training=None if training is None else made_of(TrainingOptions, training, "model.training"),
            measure=made_of(MeasureOptions, data.get("measure") or {}, "measure"),
            verify=made_of(VerifyOptions, data.get("verify") or {}, "verify"),
            time_limit=made_of(LimitOptions, _only(data, "time_limit"), "pipeline").time_limit,
            calibration_samples=count_of(data.get("calibration_samples", 128), "calibration_samples"),
            candidates=candidates,
            report_types=_types(report.get("types")),
        )


_KEYS = (
    "title", "output", "dataset", "model", "calibration_samples", "measure", "verify", "time_limit", "candidates",
    "report",
)  # fmt: skip
_CANDIDATE_KEYS = ("title", "export", "compilers", "runtime", "protocol", "remote", "serve", "time_limit")


def _candidate(entry: Any, where: str, wrapper: ModelWrapper) -> CandidateSettings:
    data = check_keys(entry, _CANDIDATE_KEYS, where, ("title",))
    given = data.get("compilers") or []
    if not isinstance(given, list):
        raise ConfigError(f"{where}.compilers: expected a list")
    compilers = tuple(component_of(item, ModelCompiler, f"{where}.compilers.{i}") for i, item in enumerate(given))
    title = text_of(data["title"], f"{where}.title")
    limit = made_of(LimitOptions, _only(data, "time_limit"), where).time_limit if "time_limit" in data else None
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
    return Deployment(protocol, made_of(RemoteOptions, data.get("remote") or {}, f"{where}.remote"), serve)


def _only(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: data[key]} if key in data else {}


def _types(given: Any) -> tuple[str, ...] | None:
    if given is None:  # what the results allow
        return None
    if not isinstance(given, list) or any(name not in REPORT_TYPES for name in given):
        raise ConfigError(f"report.types: expected a list of {', '.join(REPORT_TYPES)}, found {given!r}")
    return tuple(given)


def schema(of_plugins: bool = True) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of pipeline files, from the components that are there, plugins' too if wanted."""
    text = {"type": "string", "minLength": 1}
    compilers = {"type": "array", "items": {"$ref": "#/$defs/compilers"}, "description": "the chain, in order"}
    limit = _arguments(LimitOptions)["properties"]["time_limit"]
    candidate = _object(
        {
            "title": text,
            "export": {"type": "string", "description": "format to export the model as; chosen by itself if left out"},
            "compilers": compilers,
            "runtime": {"$ref": "#/$defs/runtimes", "description": "left out: the model's own framework"},
            "protocol": {"$ref": "#/$defs/protocols", "description": "the way to a target; left out: this machine"},
            "remote": _arguments(RemoteOptions),
            "time_limit": limit | {"description": "for this candidate, where it needs another"},
            "serve": {
                "type": "boolean",
                "default": False,
                "description": "start a server on this machine at the protocol's address, for this candidate",
            },
        },
        ("title",),
    )
    training = {"anyOf": [_arguments(TrainingOptions), {"type": "null"}]}
    model_extra = {"path": text | {"description": "file of the trained weights"}, "training": training}
    families: dict[str, tuple[type[Component], dict[str, Any]]] = {
        "datasets": (Dataset, {}),
        "modelwrappers": (ModelWrapper, model_extra),
        "compilers": (ModelCompiler, {}),
        "runtimes": (Runtime, {}),
        "protocols": (RuntimeProtocol, {}),
    }
    root = _object(
        {
            "title": text,
            "output": text | {"description": "folder for models, results and the report", "default": "build"},
            "dataset": {"$ref": "#/$defs/datasets"},
            "model": {"$ref": "#/$defs/modelwrappers"},
            "calibration_samples": {"type": "integer", "minimum": 1, "default": 128},
            "measure": _arguments(MeasureOptions),
            "verify": _arguments(VerifyOptions),
            "time_limit": limit,
            "candidates": {"type": "array", "items": candidate, "minItems": 1},
            "report": _object({"types": {"type": "array", "items": {"enum": list(REPORT_TYPES)}}}, ()),
        },
        ("dataset", "model", "candidates"),
    )
    definitions = {family: _choice(base, extra, of_plugins) for family, (base, extra) in families.items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nnpipe pipeline", **root} | {
        "$defs": definitions
    }


def _choice(base: type[Component], extra: dict[str, Any], of_plugins: bool) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    names: list[str] = []
    for cls in components(base):
        if not of_plugins and not cls.__module__.startswith("nnpipe."):
            continue
        spellings = [cls.dotted_path(), cls.__name__]
        names += spellings
        arguments = _arguments(cls)
        if "path" in extra:  # stands for the argument of that name
            arguments["required"] = [name for name in arguments["required"] if name != PATH]
        properties = {"class": {"enum": spellings}, "arguments": arguments, **extra}
        choices.append(_object(properties, ("class",)) | {"title": cls.__name__, "description": cls.summary()})
    # A bare name will do where no argument is given, but a model may have more to say than its class.
    return {"anyOf": choices if extra else [{"enum": names}, *choices]}


def _arguments(cls: type[Component]) -> dict[str, Any]:
    declared = arguments_of(cls)
    return _object({a.name: a.schema() for a in declared}, [a.name for a in declared if a.required])


def _object(properties: dict[str, Any], required: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
