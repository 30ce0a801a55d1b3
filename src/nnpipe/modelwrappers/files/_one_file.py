"""Models that are too large for one ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime


def refuse_one_file(
    path: Path,
    size: int,
    largest: int,
    takers: Sequence[type[ModelCompiler] | type[Runtime]],
    remote: bool,
    runtimes: str,
    instead: str,
) -> None:
    """Raise :class:`ConfigError` if a model does not fit into one ONNX file and one is needed.

    Parameters
    ----------
    path, size
        The model's file, and the bytes of the model with its weights.
    largest
        Bytes that one file can hold.
    takers, remote
        The stages that take the model, and whether it is sent to a target.
    runtimes
        The runtimes that run it as it is.
    instead
        What to do instead of sending it to a target.
    """
    if size <= largest:
        return
    first = takers[0]
    if issubclass(first, ModelCompiler) and first.one_file:
        raise ConfigError(
            f"{path}: with its weights it has {size:,} bytes, and {first.__name__} works on one file of at most "
            f"{largest:,}; the runtimes {runtimes} run it as it is"
        )
    if remote and len(takers) == 1:
        raise ConfigError(
            f"{path}: with its weights it has {size:,} bytes, more than the one file of {largest:,} that is sent to a "
            f"target; {instead}"
        )
