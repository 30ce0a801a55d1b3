"""The interface of compilers, which turn one model file into another."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import Batch, IOSpec

Ranges = dict[str, tuple[float, float]]

Calibration = Callable[[], Iterable[Batch]]
"""A function whose every call returns a new iterator over batches of one sample that fit the
model's inputs.
"""


class ModelCompiler(Component):
    """Converts, optimises or quantises a model.  Compilers chain.

    Authors set ``accepts``, ``produces`` and ``suffix`` and write ``_compile``; callers
    use :meth:`compile`.  A compiler keeps the names of inputs and outputs.

    Attributes
    ----------
    accepts
        The formats that the compiler reads.
    produces
        The format that it writes.
    suffix
        The usual suffix of files in that format, with its dot.
    one_file
        Whether a model with weights in separate files must first be joined into one file.
    unsupported_types
        Element types of weights and values with which it compiles no model, such as
        ``("bfloat16",)``.

    Examples
    --------
    >>> import shutil
    >>> from nnpipe import Artifact, IOSpec, TensorSpec
    >>> class Wrapping(ModelCompiler):
    ...     accepts, produces, suffix = ("onnx",), "wrapped", ".wrapped"
    ...     def _compile(self, artifact, path, calibration):
    ...         shutil.copyfile(artifact.path, path)
    ...         return Artifact.create(path, self.produces, artifact.io, parent=artifact, producer=self.describe())
    >>> _ = Path("model.onnx").write_bytes(b"...")
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    >>> made = Wrapping().compile(Artifact.create("model.onnx", "onnx", io), "model.wrapped")
    >>> made.format, made.parent.path.name
    ('wrapped', 'model.onnx')
    """

    accepts: ClassVar[tuple[str, ...]] = ()
    produces: ClassVar[str] = ""
    suffix: ClassVar[str] = ""
    one_file: ClassVar[bool] = False
    unsupported_types: ClassVar[tuple[str, ...]] = ()

    def needs_calibration(self) -> bool:
        """Return whether the compiler needs calibration samples with these arguments."""
        return False

    def compile(
        self, artifact: Artifact, path: str | Path, calibration: Calibration | None = None
    ) -> Artifact:
        """Compile ``artifact`` and write the result to ``path``.

        Parameters
        ----------
        artifact
            The model to start from.
        path
            The file to write.  If the compiler fails, no part of it is left.
        calibration
            Returns batches of representative inputs; required if ``needs_calibration()``.

        Raises
        ------
        ConfigError
            If the compiler does not accept the format, or needs calibration data and none are
            given.
        SpecMismatch
            If calibration data do not fit the model's inputs.
        MissingDependency
            If a package or program that the compiler needs is not installed.
        ArtifactError
            If the model file is missing or does not belong to its description.
        CompileError
            If the compiler fails; the message names the model and the cause.
        """
        if artifact.format not in self.accepts:
            raise ConfigError(
                f"{type(self).__name__} reads {' or '.join(self.accepts)}, {artifact.path} is "
                f"{artifact.format}"
            )
        if calibration is None and self.needs_calibration():
            raise ConfigError(
                f"{type(self).__name__} needs calibration data to quantise; name a dataset"
            )
        self.check_ready()
        artifact.verify()
        seen: Ranges = {}
        made = self._compile(
            artifact, Path(path), calibration and _check_calibration(calibration, artifact.io, seen)
        )
        meaning = made.meaning or artifact.meaning
        return made if meaning is None else made.update_meaning(meaning.with_observed_ranges(seen))

    @abstractmethod
    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        """Write ``path``; the format and the file have been checked, and calibration is given if it
        is needed.

        Calibration batches are checked as they are read.
        """

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return why the compiler is known to refuse a model file, found quickly and without
        compiling.

        Parameters
        ----------
        path
            A file in a format of ``accepts``.

        Returns
        -------
        tuple of str
            One line for each cause.  Empty if nothing is known, as by default; compiling may fail
            nevertheless.

        Raises
        ------
        ArtifactError
            If the file is missing or damaged.
        """
        return ()

    def claims(self) -> tuple[Claim, ...]:
        """Return which properties of its source the result keeps; comparisons of the two use this.

        By default, the result computes the same in 32-bit floats.
        """
        return ("float",)

    def variant(self) -> str:
        """Return a short name of the result for file names and tables, such as ``"int8"``."""
        return self.produces


def _check_calibration(calibration: Calibration, io: IOSpec, seen: Ranges) -> Calibration:
    """Return the same batches, record their ranges, and raise an error if one does not fit or
    there are none.
    """

    real = [
        spec.name for spec in io.inputs if spec.scale is None and spec.dtype.startswith("float")
    ]

    def iter_batches() -> Iterator[Batch]:
        empty = True
        for batch in calibration():
            io.check_inputs(batch)
            _record_ranges(batch, real, seen)
            empty = False
            yield batch
        if empty:
            raise ConfigError("calibration gave no samples; ask for at least one")

    return iter_batches


def _record_ranges(batch: Batch, names: Sequence[str], seen: Ranges) -> None:
    for name in names:
        if batch[name].size:
            low, high = float(batch[name].min()), float(batch[name].max())
            least, most = seen.get(name, (low, high))
            if math.isfinite(low) and math.isfinite(high):
                seen[name] = min(least, low), max(most, high)
