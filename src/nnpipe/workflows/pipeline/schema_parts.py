"""Common parts of the JSON Schemas of pipeline and sweep files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.core.arguments import arguments_of
from nnpipe.core.component import Component
from nnpipe.core.registry import components
from nnpipe.workflows.pipeline.entries import PATH

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def arguments_schema(cls: type[Component]) -> Schema:
    """Return the schema of a component's arguments."""
    declared = arguments_of(cls)
    names = {name: a.schema() for a in declared for name in (a.name, *a.aliases)}
    return object_schema(names, [a.name for a in declared if a.required])


def choice(base: type[Component], extra: Mapping[str, Any], of_plugins: bool, vary: bool = False) -> Schema:
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
        spellings = [cls.dotted_path(), cls.__name__]
        names += spellings
        arguments = arguments_schema(cls)
        if "path" in extra:  # replaces the argument of that name
            arguments["required"] = [name for name in arguments["required"] if name != PATH]
        properties = {"class": {"enum": spellings}, "arguments": arguments, **extra}
        if vary:
            properties["vary"] = object_schema(
                {
                    name: {"type": "array", "items": value, "minItems": 1}
                    for name, value in arguments["properties"].items()
                }
            )
            arguments["required"] = []  # "path" may be given instead
        choices.append(object_schema(properties, ("class",)) | {"title": cls.__name__, "description": cls.summary()})
    # A bare name is enough if no argument is required; a model's entry may need further keys.
    return {"anyOf": choices if extra else [{"enum": names}, *choices]}
