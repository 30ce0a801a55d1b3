"""What compilers that write one file have in common: whole files, kept names, named causes, no noise."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.errors import CompileError, NNPipeError
from nnpipe.core.files import replacing
from nnpipe.core.quiet import native_output_held
from nnpipe.core.tensors import IOSpec, TensorSpec


class WritingCompiler(ModelCompiler):
    """A compiler whose result is one file.

    Authors write :meth:`_write`; what it raises becomes a
    :class:`CompileError` that names the model and the cause.

    Attributes
    ----------
    packages
        Distributions whose versions are recorded with the result.
    """

    packages: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        """Write the result and give its inputs and outputs, as read from it."""
        raise NotImplementedError

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        """Return what only making the file has shown, for its description; nothing by default."""
        return {}

    def target_name(self) -> str:
        """Say what the result is made for."""
        return "cpu"

    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        try:
            with replacing(path) as temporary:
                with _silence():
                    found = self._write(artifact, temporary, calibration)
                    outcome = self._outcome(temporary)
                io = _completed(found, artifact.io)
        except Exception as error:  # compilers fail in every way there is
            if isinstance(error, NNPipeError) and not isinstance(error, CompileError):
                raise
            raise CompileError(f"{type(self).__name__} cannot compile {artifact.path}: {one_line(error)}") from error
        return Artifact.of(
            path,
            self.produces,
            io,
            frameworks=tuple(_versions(self.packages)),
            target=self.target_name(),
            producer=self.describe(),
            parent=artifact,
            claims=self.claims(),
            outcome=outcome,
        )


def one_line(error: object) -> str:
    """Return an error's text without line breaks, cut where it becomes a report."""
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:500]


def _versions(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _completed(found: IOSpec, source: IOSpec) -> IOSpec:
    """Put tensors in the order of the source, with the quantisation that the new file has no place for.

    Raises
    ------
    CompileError
        If the compiler did not keep the names.
    """
    sides = []
    for side in ("inputs", "outputs"):
        new, old = {s.name: s for s in getattr(found, side)}, getattr(source, side)
        if new.keys() != {spec.name for spec in old}:
            raise CompileError(
                f"the {side} of the result are {', '.join(new)}, those of the model {', '.join(s.name for s in old)}"
            )
        sides.append(tuple(_inherited(new[spec.name], spec) for spec in old))
    return IOSpec(*sides)


def _inherited(new: TensorSpec, old: TensorSpec) -> TensorSpec:
    if new.scale is None and old.scale is not None and new.dtype == old.dtype:
        return replace(new, scale=old.scale, zero_point=old.zero_point, axis=old.axis)
    return new


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep what converters print and log away from the terminal; what fails is raised all the same."""

    def dropped(record: logging.LogRecord) -> bool:
        return False

    # Filters of a logger hold for what is logged on it directly, so other packages' records pass.
    loggers = [logging.getLogger(name) for name in ("", "absl", "tensorflow", "onnxruntime")]
    # Without a handler, logging.warning() would install one for good.
    handler = logging.NullHandler()
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.addFilter(dropped)
    try:
        with native_output_held(), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(dropped)
        loggers[0].removeHandler(handler)
