"""C sources of models: the file, how this computer's C compiler builds it, and the session that
runs the result.

A file holds one translation unit of C99 with ``nn_input``, ``nn_output``, ``nn_run`` and
``nn_reset``, or names with another prefix.  A comment in its last line states inputs and outputs as
JSON, and the SHA-256 of everything before that line.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import BUILT_BYTES
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.discoverable import C
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

# The constants and structures of elf(5).
_LOAD = 1  # PT_LOAD
_NO_BITS, _ALLOCATED = 8, 2  # SHT_NOBITS, SHF_ALLOC


def compute_loaded_size(program: Path) -> int:
    """Return the bytes of an ELF file that are loaded to memory from it; of another file, its
    own.
    """
    data = program.read_bytes()
    if not _is_elf(data):
        return len(data)
    size_at = 5 if _is_wide(data) else 4
    segments = _iter_headers(data, (32, 54) if _is_wide(data) else (28, 42))
    return sum(segment[size_at] for segment in segments if segment[0] == _LOAD)


def compute_built_size(compiled: Path) -> int | None:
    """Return the bytes of code, constants and initial values in an object file; None if it is no
    ELF file.

    Memory that is zero at the beginning takes none.
    """
    data = compiled.read_bytes()
    if not _is_elf(data):
        return None
    found = 0
    for _, kind, flags, _, _, size in _iter_headers(data, (40, 58) if _is_wide(data) else (32, 46)):
        found += size if flags & _ALLOCATED and kind != _NO_BITS else 0
    return found


def _is_elf(data: bytes) -> bool:
    return data[:4] == b"\x7fELF"


def _is_wide(data: bytes) -> bool:
    return data[4] == 2


def _iter_headers(data: bytes, stated: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """Yield the headers of which a file states the place, and the length and number, at these
    places.
    """
    order, word = "<" if data[5] == 1 else ">", "Q" if _is_wide(data) else "I"
    (at,) = struct.unpack_from(order + word, data, stated[0])
    length, count = struct.unpack_from(order + "HH", data, stated[1])
    for begin in range(at, at + length * count, length):
        yield struct.unpack_from(f"{order}II4{word}", data, begin)


FORMAT = "c"
PREFIX = "nn"
"""What the names of functions begin with unless the file's notes say otherwise."""
FUNCTIONS = ("input", "output", "run", "reset")
_BEGIN, _END = "/* nnpipe-c-1 ", " */\n"
_LIMIT = 1 << 30  # bytes of a file
_FLAGS = ("-std=c99", "-O3", "-ffp-contract=off", "-w", "-fPIC")


def is_prefix(text: str) -> bool:
    """Return whether names of functions in C can begin with a text."""
    return re.fullmatch(r"[A-Za-z_]\w{,39}", text, re.ASCII) is not None


def get_function_names(notes: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's functions, in the order of :data:`FUNCTIONS`, from its notes."""
    return [f"{notes.get('prefix', PREFIX)}_{function}" for function in FUNCTIONS]


def write_c_source(path: Path, text: str, io: IOSpec, notes: Mapping[str, Any]) -> None:
    """Write a C source with its description in the last line."""
    said = {
        "io": io.to_json(),
        "notes": dict(notes),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    # In JSON, a slash may be escaped; so no name can end the comment.
    described = json.dumps(said).replace("/", "\\/")
    path.write_text(f"{text}{_BEGIN}{described}{_END}", encoding="utf-8", newline="\n")


def read_c_source(path: Path) -> tuple[IOSpec, Mapping[str, Any]]:
    """Return inputs, outputs and notes of a C source after checking that it is undamaged.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or was not made by nnpipe; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    if path.stat().st_size > _LIMIT:
        raise ArtifactError(f"{path}: too large for the C source of a model")
    data = path.read_bytes()
    at = data.rfind(_BEGIN.encode())
    if at < 0 or not data.endswith(_END.encode()):
        raise ArtifactError(
            f"{path}: damaged, or not made by nnpipe: the description in its last line is missing"
        )
    try:
        said = parse_json(data[at + len(_BEGIN) : -len(_END)])
        io, notes, digest = IOSpec.from_json(said["io"]), dict(said["notes"]), said["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError, SpecMismatch) as error:
        raise ArtifactError(
            f"{path}: the description in its last line is damaged: {error}"
        ) from None
    if hashlib.sha256(data[:at]).hexdigest() != digest:
        raise ArtifactError(f"{path}: damaged: its content does not agree with its last line")
    if not is_prefix(str(notes.get("prefix", PREFIX))):
        raise ArtifactError(
            f"{path}: the description in its last line is damaged: it names no prefix of functions"
        )
    if any(None in spec.shape for spec in io):
        raise ArtifactError(
            f"{path}: the description in its last line is damaged: it leaves a length free"
        )
    return io, notes


@dataclass(frozen=True)
class BuiltSource:
    """What a C compiler made of a C source.

    Parameters
    ----------
    functions
        The functions that it has by its notes, which run its machine code.  Their memory is their
        own, so a session needs them for itself.
    size
        The bytes of code, constants and initial values; ``None`` if the compiler's output does not
        tell.
    """

    functions: Sequence[Any]
    size: int | None


def load_c_source(path: Path, notes: Mapping[str, Any], needed_by: str) -> BuiltSource:
    """Build a C source, and load the machine code.

    Raises
    ------
    MissingTool
        If no C compiler is installed.
    ArtifactError
        If the compiler refuses the source.
    """
    compiler = C.check(needed_by)
    with tempfile.TemporaryDirectory() as folder:
        compiled, library = Path(folder, "model.o"), Path(folder, "model.so")
        source = ["-x", "c", str(path.absolute())]
        for command in (
            ["-c", *_FLAGS, "-o", str(compiled), *source],
            ["-shared", "-o", str(library), str(compiled)],
        ):
            done = subprocess.run(
                [compiler, *command], capture_output=True, text=True, errors="replace", check=False
            )
            if done.returncode:
                told = next(
                    (line for line in done.stderr.splitlines() if "error" in line),
                    done.stderr.strip() or "?",
                )
                raise ArtifactError(
                    f"{path}: {compiler} cannot compile it: {' '.join(told.split())[:300]}"
                )
        size = compute_built_size(compiled)
        try:
            loaded = ctypes.CDLL(str(library))
            found = [getattr(loaded, name) for name in get_function_names(notes)]
        except (OSError, AttributeError) as error:
            raise ArtifactError(
                f"{path}: what {compiler} made of it cannot be loaded: {error}"
            ) from None
    for function, result in zip(found, (ctypes.c_void_p, ctypes.c_void_p, None, None), strict=True):
        function.restype = result
    return BuiltSource(found, size)


class CSession(InferenceSession):
    """Runs the library built from a C source.

    Parameters
    ----------
    built
        What :func:`load_c_source` returned.
    io
        Inputs and outputs of the session.
    found
        The same tensors in the order of the source.
    notes
        What the source says of itself.
    """

    def __init__(
        self, built: BuiltSource, io: IOSpec, found: IOSpec, notes: Mapping[str, Any]
    ) -> None:
        self.io = io
        self.keeps_state = bool(notes.get("state_bytes"))
        self._notes, self._built = notes, built
        input_at, output_at, self._run_all, self._reset_all = built.functions
        inputs = {spec.name: _view_memory(input_at(n), spec) for n, spec in enumerate(found.inputs)}
        outputs = {
            spec.name: _view_memory(output_at(n), spec) for n, spec in enumerate(found.outputs)
        }
        self._inputs = [(spec.name, inputs[spec.name]) for spec in io.inputs]
        self._outputs = [(spec.name, outputs[spec.name]) for spec in io.outputs]
        self._batch: dict[str, np.ndarray] = {}

    def _put(self, batch: Batch) -> None:
        self._batch = {name: np.asarray(batch[name]) for name, _ in self._inputs}

    def _run(self) -> None:
        # A run may overwrite its inputs, and a batch can be run again.
        for name, place in self._inputs:
            place[...] = self._batch[name]
        self._run_all()

    def _reset(self) -> None:
        self._reset_all()

    def _get(self) -> dict[str, np.ndarray]:
        return {name: place.copy() for name, place in self._outputs}

    def stats(self) -> Mapping[str, Any]:
        """Return the bytes of the arena, of a smallest one if known, of the constants, and of
        all that was built.
        """
        size = self._built.size
        return dict(self._notes) | ({} if size is None else {BUILT_BYTES: size})


def _view_memory(address: int | None, spec: TensorSpec) -> np.ndarray:
    """Return the memory at an address as an array."""
    kind, shape = np.dtype(spec.dtype), [length or 0 for length in spec.shape]
    if address is None:
        raise ArtifactError(f"the library knows no tensor {spec.name!r}")
    memory = (ctypes.c_uint8 * (math.prod(shape) * kind.itemsize)).from_address(address)
    found: np.ndarray = np.ndarray(shape, kind, memory)  # type: ignore[arg-type]  # it has a buffer
    return found
