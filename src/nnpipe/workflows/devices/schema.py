"""The JSON Schema of files of devices, for editors."""

from __future__ import annotations

from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.report.formatting import BASES
from nnpipe.workflows.pipeline.schema import (
    DIALECT,
    Schema,
    build_arguments_schema,
    build_choice_schema,
    build_object_schema,
)


def build_devices_schema(of_plugins: bool = True) -> Schema:
    """Return the JSON Schema (draft 2020-12) of files of devices, for all protocols, optionally
    those of plugins.
    """
    return {"$schema": DIALECT, "title": "nnpipe devices", **build_fleet_schema(of_plugins)}


def build_fleet_schema(of_plugins: bool) -> Schema:
    """Return the schema of the content of such a file."""
    text = {"type": "string", "minLength": 1}
    cost = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]}
    device = build_object_schema(
        {
            "name": text
            | {"description": "by which results are kept: a new machine deserves a new name"},
            "protocol": {
                "anyOf": [build_choice_schema(RuntimeProtocol, {}, of_plugins), {"type": "null"}],
                "description": "the way to its server; left out: it is this machine",
            },
            "remote": build_arguments_schema(RemoteOptions),
            "description": text | {"description": "what it is"},
            **{
                basis: cost | {"description": f"what it costs {words}"}
                for basis, words in BASES.items()
            },
            "tags": {
                "type": "array",
                "items": text,
                "description": "words that stand for several devices",
            },
            "runtimes": {
                "anyOf": [
                    {"type": "array", "items": text, "minItems": 1},
                    {"type": "object", "minProperties": 1},
                ],
                "description": "the runtimes that it serves, optionally with arguments of the protocol for each",
            },
        },
        ("name",),
    )
    return build_object_schema(
        {
            "currency": text | {"description": "of all costs"},
            "leases": text
            | {"description": "the run database in which people who share devices take turns"},
            "devices": {"type": "array", "items": device, "minItems": 1},
        },
        ("devices",),
    )
