"""Errors of runtimes as errors of a model file: what was being done, to which node, and what to try."""

from __future__ import annotations

import contextlib
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import library_failure
from nnpipe.formats.onnx_nodes import read_nodes

REDUCE = "nnpipe reduce finds the part of the model on which it fails"


def runtime_failure(path: Path, library: str, action: str, error: object, advice: str = REDUCE) -> ArtifactError:
    """Return the error of a runtime that cannot carry out a model.

    Parameters
    ----------
    path
        The model file.
    library
        The name of the runtime.
    action
        What it was to do, such as ``load it`` or ``run it``.
    error
        What it raised, or its message without its traces.
    advice
        What to try.
    """
    return ArtifactError(f"{path}: {library_failure(library, error, kinds_of_nodes(path), advice, action)}")


def kinds_of_nodes(path: Path) -> dict[str, str]:
    """Return the kinds of an ONNX file's nodes by their names and those of what they compute; of others, none."""
    found: dict[str, str] = {}
    if path.suffix.lower() == ".onnx":
        with contextlib.suppress(ArtifactError):
            for node in read_nodes(path):
                found |= dict.fromkeys((node.name, *node.outputs), node.kind)
    return found
