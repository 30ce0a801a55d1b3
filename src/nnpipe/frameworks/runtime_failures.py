"""Errors of runtimes as errors of a model file, and suppression of the output of frameworks."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_library_error
from nnpipe.core.native_output import capture_native_output
from nnpipe.formats.onnx_network import read_nodes

REDUCE = "nnpipe reduce finds the part of the model on which it fails"


def make_runtime_failure(
    path: Path, library: str, action: str, error: object, advice: str = REDUCE
) -> ArtifactError:
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
    return ArtifactError(
        f"{path}: {format_library_error(library, error, map_node_kinds(path), advice, action)}"
    )


def map_node_kinds(path: Path) -> dict[str, str]:
    """Return the kinds of an ONNX file's nodes by their names and those of what they compute; of
    others, none.
    """
    found: dict[str, str] = {}
    if path.suffix.lower() == ".onnx":
        with contextlib.suppress(ArtifactError):
            for node in read_nodes(path):
                found |= dict.fromkeys((node.name, *node.outputs), node.kind)
    return found


@contextlib.contextmanager
def suppress_output() -> Iterator[None]:
    """Suppress output, log messages and warnings of Python and native code inside the block;
    exceptions pass.

    This affects the whole process, including other threads, so the block should
    be one call into a framework.
    """
    with (
        capture_native_output(),
        warnings.catch_warnings(),
    ):  # the first admits one thread at a time
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                yield
        finally:
            logging.disable(before)
