"""The interface of compilers, which turn one model file into another."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import Batch, IOSpec

Ranges = dict[str, tuple[float, float]]

Calibration = Callable[[], Iterable[Batch]]
"""Gives, at every call anew, batches of one sample that agree with the model's inputs."""


class ModelCompiler(Component):
    """Converts, optimises or quantises a model.  Compilers chain.

    Authors set ``accepts``, ``produces`` and ``suffix`` and write ``_compile``; callers
    use :meth:`compile`.  A compiler keeps the names of inputs and outputs.

    Attributes
    ----------
    accepts
        Formats that it reads.
    produces
        The format that it writes.
    suffix
        The usual ending of files in that format, with its dot.
    one_file
        Whether a model whose weights lie in files beside it has to become one file first.

    Examples
    --------
    >>> import shutil
    >>> from nnpipe import Artifact, IOSpec, TensorSpec
    >>> class Wrapping(ModelCompiler):
    ...     accepts, produces, suffix = ("onnx",), "wrapped", ".wrapped"
    ...     def _compile(self, artifact, path, calibration):
    ...         shutil.copyfile(artifact.path, path)
    ...         return Artifact.of(path, self.produces, artifact.io, parent=artifact, producer=self.describe())
    >>> _ = Path("model.onnx").write_bytes(b"...")
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    >>> made = Wrapping().compile(Artifact.of("model.onnx", "onnx", io), "model.wrapped")
    >>> made.format, made.parent.path.name
    ('wrapped', 'model.onnx')
    """

    accepts: ClassVar[tuple[str, ...]] = ()
    produces: ClassVar[str] = ""
    suffix: ClassVar[str] = ""
    one_file: ClassVar[bool] = False

    def needs_calibration(self) -> bool:
        """Return whether these arguments make the compiler look at samples."""
        return False

    def compile(self, artifact: Artifact, path: str | Path, calibration: Calibration | None = None) -> Artifact:
        """Make ``path`` from ``artifact``.

        Parameters
        ----------
        artifact
            The model to start from.
        path
            The file to write; it appears whole or not at all.
        calibration
            Gives representative inputs; required where ``needs_calibration()``.

        Raises
        ------
        ConfigError
            If the format does not fit, or calibration data are wanted and none are given.
        SpecMismatch
            If calibration data are not what the model takes.
        MissingDependency
            If a package or program that the compiler stands on is not installed.
        ArtifactError
            If the model file is missing, or not the one that its description belongs to.
        CompileError
            If the compiler fails; the message names the model and the cause.
        """
        if artifact.format not in self.accepts:
            raise ConfigError(
                f"{type(self).__name__} reads {' or '.join(self.accepts)}, {artifact.path} is {artifact.format}"
            )
        if calibration is None and self.needs_calibration():
            raise ConfigError(f"{type(self).__name__} needs calibration data to quantise; name a dataset")
        self.check_ready()
        artifact.verify()
        seen: Ranges = {}
        made = self._compile(artifact, Path(path), calibration and _checked(calibration, artifact.io, seen))
        meaning = made.meaning or artifact.meaning
        return made if meaning is None else made.described(meaning.observing(seen))

    @abstractmethod
    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        """Make ``path``; format and file have been checked, and calibration is there if it is needed.

        Calibration batches are checked as they are drawn.
        """

    def claims(self) -> tuple[Claim, ...]:
        """Return what the result still has of its source, by which the two are held against each other.

        The default is that it computes the same numbers in 32-bit floats.
        """
        return ("float",)

    def variant(self) -> str:
        """Return a short name of what comes out, such as ``"int8"``, for file names and tables."""
        return self.produces


def _checked(calibration: Calibration, io: IOSpec, seen: Ranges) -> Calibration:
    """Return the same batches, note their ranges, and raise when one does not agree with the model or there is none."""

    real = [spec.name for spec in io.inputs if spec.scale is None and spec.dtype.startswith("float")]

    def batches() -> Iterator[Batch]:
        empty = True
        for batch in calibration():
            io.check_inputs(batch)
            _note(batch, real, seen)
            empty = False
            yield batch
        if empty:
            raise ConfigError("calibration gave no samples; ask for at least one")

    return batches


def _note(batch: Batch, names: Sequence[str], seen: Ranges) -> None:
    for name in names:
        if batch[name].size:
            low, high = float(batch[name].min()), float(batch[name].max())
            least, most = seen.get(name, (low, high))
            if math.isfinite(low) and math.isfinite(high):
                seen[name] = min(least, low), max(most, high)
