"""The JSON Schema of architectures in search files."""

from __future__ import annotations

from typing import Any

from nnpipe.architectures.cell_space import MOST_NODES
from nnpipe.architectures.operations import KNOWN


def architecture_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an architecture; see :class:`ArchitectureSpace`."""
    count, text = {"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}
    several = {"anyOf": [count, {"type": "array", "items": count, "minItems": 1, "uniqueItems": True}]}
    own = {
        "type": "object",
        "properties": {"name": text, "layers": {"type": "array", "items": {"type": "object"}, "minItems": 1}},
        "required": ["name", "layers"],
        "additionalProperties": False,
    }
    cell = {
        "type": "object",
        "properties": {
            "operations": {
                "type": "array", "minItems": 1, "items": {"anyOf": [{"enum": list(KNOWN)}, own]},
                "description": "what an edge may compute: known ones, or layers in which channels stands for a number",
            },
            "nodes": {"type": "integer", "minimum": 1, "maximum": MOST_NODES, "default": 3},
            "inputs": {"enum": [1, 2], "default": 1, "description": "2 takes the outputs of the two cells before"},
            "keep": count | {"description": "edges into each node; left out: all, each with an operation"},
            "output": {"enum": ["last", "concatenate"], "default": "last"},
        },
        "required": ["operations"],
        "additionalProperties": False,
    }  # fmt: skip
    return {
        "type": "object",
        "description": "networks of cells that the pipeline trains and measures; their parameters add to the space",
        "properties": {
            "cell": cell,
            "channels": several | {"description": "channels of the first stage, or several to choose from"},
            "cells": several | {"description": "cells in each stage, or several to choose from"},
            "stages": count | {"default": 2},
            "input": {
                "type": "array", "items": count, "minItems": 3, "maxItems": 3,
                "description": "height, width and channels; left out: those of the data set",
            },
            "classes": {"type": "integer", "minimum": 2},
            "input_name": text,
            "target": text,
        },
        "required": ["cell"],
        "additionalProperties": False,
    }  # fmt: skip
