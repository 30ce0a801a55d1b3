"""The base of compilers whose result is one file."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
import re
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from nnpipe.compilers._onnx_packing import DOMAIN
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.errors import CompileError, NNPipeError
from nnpipe.core.files import replace_atomically
from nnpipe.core.messages import format_library_error, format_one_line
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.onnx_network import Contents, read_contents
from nnpipe.formats.pt2 import read_program
from nnpipe.formats.tflite_graph import get_operator_name
from nnpipe.formats.tflite_graph import read_program as read_tflite_program
from nnpipe.frameworks.runtime_failures import REDUCE, map_node_kinds

_BYTES, _HALVES = ("int8", "uint8"), ("int4", "uint4")
_TYPES: Mapping[Claim, tuple[str, ...]] = {
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
    "int8-weights": _BYTES,
    "int8": _BYTES,
    "int4-weights": _HALVES,
}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_KNOWN = (*_FLOATS, *_BYTES, *_HALVES)
_IN_BLOCKS = "com.microsoft.MatMulNBits"  # its packed weights have any number of bits
# a node that unpacks weights says how many bits they have
_PACKED = re.compile(rf"{re.escape(DOMAIN)}\.\D*(\d+)")
_OPENVINO = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "u8": "uint8",
    "i4": "int4",
    "u4": "uint4",
}


def check_claimed_numbers(path: Path, format: str, claims: Iterable[Claim], lowers: str) -> None:
    """Check that a file just written has numbers of the precision that is claimed of it.

    Parameters
    ----------
    path, format
        The file.
    claims
        What is claimed.
    lowers
        Whose precision the compiler lowers, for the message; empty for all.

    Raises
    ------
    CompileError
        If it has none, as where a quantiser found nothing that it could quantise.
    """
    wanted = [claim for claim in claims if claim in _TYPES]
    if not wanted or format not in _READERS:
        return
    found = _READERS[format](path)
    for claim in wanted:
        if not _has_claimed_types(found, claim):
            known = [
                (kind, count)
                for kind, count in found.numbers.most_common()
                if kind in _KNOWN and count
            ]
            held = ", ".join(f"{count:,} {kind}" for kind, count in known)
            reason = f"its weights are {held}, and stay so" if held else "it has no weights"
            only = f"; only {lowers} would" if held and lowers else ""
            raise CompileError(
                f"nothing in it would become {claim.partition('-')[0]}: {reason}{only}"
            )


def has_weights_of_8_bits(path: Path, format: str) -> bool:
    """Return whether weights in a file are integers of 8 bits."""
    return any(_READERS[format](path).matrices[kind] for kind in _BYTES)


def _has_claimed_types(found: Contents, claim: Claim) -> bool:
    types = _TYPES[claim]
    if any(found.matrices[kind] for kind in types) or found.operations[_IN_BLOCKS]:
        return True
    packed = [int(named[1]) for kind in found.operations if (named := _PACKED.fullmatch(kind))]
    if claim.endswith("weights") and any(
        0 < bits <= (4 if types is _HALVES else 8) for bits in packed
    ):
        return True
    if not set(types).isdisjoint(_FLOATS) and any(found.numbers[kind] for kind in types):
        return True
    if claim.endswith("weights") or any(found.matrices[kind] for kind in _FLOATS):
        return False
    # Without weights to judge by, as in a network of poolings, it is values that are converted.
    wanted, other = ("quantize", "dequantize") if claim == "int8" else ("cast", " ")
    return any(wanted in kind.lower() and other not in kind.lower() for kind in found.operations)


def _read_tflite_contents(path: Path) -> Contents:
    program, found = read_tflite_program(path), Contents()
    found.operations.update(get_operator_name(each.code) for each in program.operators)
    for tensor in program.tensors:
        if tensor is not None and tensor.content is not None:
            found.count(tensor.spec.dtype, tensor.shape)
        elif tensor is not None and tensor.spec.dtype in _BYTES and tensor.spec.scale is not None:
            found.operations["QUANTIZE"] += 1  # where inputs are integers, no operator says so
    return found


def _read_openvino_contents(path: Path) -> Contents:
    found = Contents()
    with zipfile.ZipFile(path) as archive:
        layers = ElementTree.fromstring(archive.read("model.xml")).iter("layer")
    for layer in layers:
        data, kind = layer.find("data"), layer.get("type", "")
        if kind != "Const" or data is None:
            found.operations[kind] += 1
            continue
        dtype = data.get("element_type", "")
        extents = [int(each) for each in data.get("shape", "").split(",") if each.strip()]
        found.count(_OPENVINO.get(dtype, dtype), extents)
    return found


_READERS: Mapping[str, Callable[[Path], Contents]] = {
    "onnx": read_contents,
    "tflite": _read_tflite_contents,
    "openvino": _read_openvino_contents,
    "torch-export": lambda path: read_program(path).contents(),
}


class WritingCompiler(ModelCompiler):
    """Base of compilers whose result is one file.

    Authors write :meth:`_write` in place of ``_compile``, and may write
    :meth:`_describe_outcome` and :meth:`target_name`.  The base does the rest:

    - The file is written whole or not at all, with its description beside it.
    - Any exception of ``_write`` becomes a :class:`~nnpipe.core.errors.CompileError` of one line
      that names the model, the library, the node and the cause; other errors of nnpipe, such as
      ``ConfigError``, are not changed.
    - A result without any number of the precision in :meth:`claims` is refused: a quantiser found
      nothing.
    - Output and log messages of converters do not reach the terminal.
    - Inputs and outputs are sorted in the order of the source, and must have kept their names.

    Attributes
    ----------
    packages
        Packages whose versions are recorded with the result.
    lowers
        Whose precision it lowers if not that of all weights, as messages name it: ``"matrix
        products"``.

    Examples
    --------
    >>> import tempfile
    >>> from nnpipe import Artifact, IOSpec, TensorSpec
    >>> class Upper(WritingCompiler):
    ...     accepts, produces, suffix = ("lower-text",), "upper-text", ".txt"
    ...     def _write(self, artifact, destination, calibration):
    ...         destination.write_text(artifact.path.read_text().upper())
    ...         return artifact.io
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "model.txt").write_text("weights")
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 1), "float32"),))
    >>> made = Upper().compile(Artifact.create(folder / "model.txt", "lower-text", io), folder / "made.txt")
    >>> made.format, made.path.read_text(), made.parent.format
    ('upper-text', 'WEIGHTS', 'lower-text')
    """

    packages: ClassVar[tuple[str, ...]] = ()
    lowers: ClassVar[str] = ""

    @abstractmethod
    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        """Write the result and return its inputs and outputs.

        Parameters
        ----------
        artifact
            The model to start from; its file has been checked.
        destination
            A temporary file; it is moved to the final path after this method returns.
        calibration
            Provides batches of one sample; ``None`` if no samples were given, never
            ``None`` if ``needs_calibration()``.

        Returns
        -------
        IOSpec
            Inputs and outputs as stated in the file, in any order; quantisation that
            its format cannot express is taken from the source.
        """

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        """Return facts for the description that are known only after compiling; nothing by
        default.
        """
        return {}

    def target_name(self) -> str:
        """Return the kind of machine that the result is for; by default ``"cpu"``."""
        return "cpu"

    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        try:
            with replace_atomically(path) as temporary:
                with _suppress_converter_output():
                    found = self._write(artifact, temporary, calibration)
                    check_claimed_numbers(temporary, self.produces, self.claims(), self.lowers)
                    outcome = self._describe_outcome(temporary)
                io = _match_source(found, artifact.io)
        except Exception as error:  # compilers raise any kind of exception
            if isinstance(error, NNPipeError) and not isinstance(error, CompileError):
                raise
            known = isinstance(error, CompileError)
            reason = (
                format_one_line(error, 500) if known else self._explain_failure(error, artifact)
            )
            raise CompileError(
                f"{type(self).__name__} cannot compile {artifact.path}: {reason}"
            ) from error
        return Artifact.create(
            path,
            self.produces,
            io,
            frameworks=tuple(_iter_versions(self.packages)),
            target=self.target_name(),
            producer=self.describe(),
            parent=artifact,
            claims=self.claims(),
            outcome=outcome,
        )

    def _explain_failure(self, error: Exception, artifact: Artifact) -> str:
        library = (self.packages or self.requires or (type(self).__name__,))[0]
        return format_library_error(library, error, map_node_kinds(artifact.path), REDUCE)


def _iter_versions(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _match_source(found: IOSpec, source: IOSpec) -> IOSpec:
    """Return the tensors in the order of the source, with quantisation that the new file cannot
    express.

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
                f"the {side} of the result are {', '.join(new)}, those of the model "
                f"{', '.join(s.name for s in old)}"
            )
        sides.append(tuple(_inherit_quantization(new[spec.name], spec) for spec in old))
    return IOSpec(*sides)


def _inherit_quantization(new: TensorSpec, old: TensorSpec) -> TensorSpec:
    if new.scale is None and old.scale is not None and new.dtype == old.dtype:
        return replace(new, scale=old.scale, zero_point=old.zero_point, axis=old.axis)
    return new


@contextlib.contextmanager
def _suppress_converter_output() -> Iterator[None]:
    """Keep output and log messages of converters off the terminal; exceptions pass."""

    def drop_record(record: logging.LogRecord) -> bool:
        return False

    # Filters of a logger apply only to its own records, so those of other packages pass.
    loggers = [logging.getLogger(name) for name in ("", "absl", "tensorflow", "onnxruntime")]
    # Without a handler, logging.warning() would install one permanently.
    handler = logging.NullHandler()
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.addFilter(drop_record)
    try:
        with capture_native_output(), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(drop_record)
        loggers[0].removeHandler(handler)
