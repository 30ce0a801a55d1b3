"""The JSON Schema of pipeline files, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.core.arguments import list_arguments
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.core.task import list_installed_tasks
from nnpipe.core.training import TrainingOptions
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.report.render import PERFORMANCE
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.pipeline.entries import MOST, PATH
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def build_object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def build_arguments_schema(cls: type[Component]) -> Schema:
    """Return the schema of a component's arguments."""
    declared = list_arguments(cls)
    names = {name: a.schema() for a in declared for name in (a.name, *a.aliases)}
    return build_object_schema(names, [a.name for a in declared if a.required])


def build_choice_schema(
    base: type[Component], extra: Mapping[str, Any], of_plugins: bool, vary: bool = False
) -> Schema:
    """Return the schema of an entry that names a component.

    Parameters
    ----------
    base
        The base class of the component's family.
    extra
        Schemas of further keys of the entry, besides ``class`` and ``arguments``.
    of_plugins
        Whether to include components of plugins.
    vary
        Whether the entry may list values to try for each argument.
    """
    choices: list[Schema] = []
    names: list[str] = []
    for cls in components(base):
        if not of_plugins and not cls.__module__.startswith("nnpipe."):
            continue
        spellings = [cls.get_dotted_path(), cls.__name__]
        names += spellings
        arguments = build_arguments_schema(cls)
        if "path" in extra:  # replaces the argument of that name
            arguments["required"] = [name for name in arguments["required"] if name != PATH]
        properties = {"class": {"enum": spellings}, "arguments": arguments, **extra}
        if vary:
            properties["vary"] = build_object_schema(
                {
                    name: {"type": "array", "items": value, "minItems": 1}
                    for name, value in arguments["properties"].items()
                }
            )
            arguments["required"] = []  # "path" may be given instead
        choices.append(
            build_object_schema(properties, ("class",))
            | {"title": cls.__name__, "description": cls.summary()}
        )
    # A bare name is enough if no argument is required; a model's entry may need further keys.
    return {"anyOf": choices if extra else [{"enum": names}, *choices]}


def build_pipeline_schema(of_plugins: bool = True) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of pipeline files, for all components, optionally
    those of plugins.
    """
    text = {"type": "string", "minLength": 1}
    compilers = {
        "type": "array",
        "items": {"$ref": "#/$defs/compilers"},
        "description": "the chain, in order",
    }
    types = [PERFORMANCE, *(task.name for task in list_installed_tasks(of_plugins))]
    limit = build_arguments_schema(LimitOptions)["properties"]["time_limit"]
    candidate = build_object_schema(
        {
            "title": text,
            "models": {
                "type": "array",
                "items": text,
                "minItems": 1,
                "description": "titles of the models that it is for; left out: all",
            },
            "export": {
                "type": "string",
                "description": "format to export the model as; chosen by itself if left out",
            },
            "compilers": compilers,
            "runtime": {
                "$ref": "#/$defs/runtimes",
                "description": "left out: the model's own framework",
            },
            "protocol": {
                "$ref": "#/$defs/protocols",
                "description": "the way to a target; left out: this machine",
            },
            "remote": build_arguments_schema(RemoteOptions),
            "time_limit": limit | {"description": "for this candidate, where it needs another"},
            "serve": {
                "type": "boolean",
                "default": False,
                "description": "start a server on this machine at the protocol's address, for this candidate",
            },
        },
        ("title",),
    )
    training = {"anyOf": [build_arguments_schema(TrainingOptions), {"type": "null"}]}
    titled = text | {"description": "what it is called, where there are several"}
    model_extra = {
        "title": titled,
        "path": text | {"description": "file of the trained weights"},
        "training": training,
    }
    families: dict[str, tuple[type[Component], dict[str, Any]]] = {
        "datasets": (Dataset, {}),
        "modelwrappers": (ModelWrapper, model_extra),
        "compilers": (ModelCompiler, {}),
        "runtimes": (Runtime, {}),
        "protocols": (RuntimeProtocol, {}),
    }
    root = build_object_schema(
        {
            "title": text,
            "output": text
            | {"description": "folder for models, results and the report", "default": "build"},
            "dataset": {"$ref": "#/$defs/datasets"},
            "model": {"$ref": "#/$defs/modelwrappers"},
            "models": {
                "type": "array",
                "items": {"allOf": [{"$ref": "#/$defs/modelwrappers"}, {"required": ["title"]}]},
                "minItems": 1,
                "description": "several models instead of one, each with a title",
            },
            "calibration_samples": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "default": 128,
            },
            "measure": build_arguments_schema(MeasureOptions),
            "load": build_arguments_schema(LoadOptions),
            "verify": build_arguments_schema(VerifyOptions),
            "time_limit": limit,
            "candidates": {"type": "array", "items": candidate, "minItems": 1},
            "report": build_object_schema(
                {"types": {"type": "array", "items": {"enum": types}}}, ()
            ),
        },
        ("dataset", "candidates"),
    ) | {"oneOf": [{"required": ["model"]}, {"required": ["models"]}]}
    definitions = {
        family: build_choice_schema(base, extra, of_plugins)
        for family, (base, extra) in families.items()
    }
    return {"$schema": DIALECT, "title": "nnpipe pipeline", **root} | {"$defs": definitions}
