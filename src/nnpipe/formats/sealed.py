"""Reading and writing of sealed files: compiled models with a trailer that describes them and
reveals damage.

They are used for formats that neither name a model's tensors nor detect damage.
The trailer follows the model, and other tools ignore it.  It consists of a JSON
object with the format, the inputs and the outputs of the model, the object's
length (8 bytes, little-endian), the SHA-256 of everything before it (32 bytes),
and the mark ``NNPIPE-1`` (8 bytes).

Machine code and FlatBuffers from a damaged file can crash the process that runs
them, so damage is detected first.  The seal is not a signature: anybody can
seal a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec

_MARK = b"NNPIPE-1"
_LENGTH, _DIGEST = 8, 32
_FOOTER = _LENGTH + _DIGEST + len(_MARK)


@dataclass(frozen=True)
class SealedFile:
    """The content of a sealed file.

    Attributes
    ----------
    content
        The model, as its framework wrote it.
    format
        The artifact's format, such as ``"executorch"``.
    io
        Inputs and outputs, in the order in which the model takes and gives them.
    notes
        Other values that the runtime needs.
    """

    content: bytes
    format: str
    io: IOSpec
    notes: Mapping[str, Any] = field(default_factory=dict)


def write_sealed(path: Path, file: SealedFile) -> None:
    """Write the content and the trailer of a sealed file."""
    said = json.dumps(
        {"format": file.format, "io": file.io.to_json(), "notes": dict(file.notes)}
    ).encode()
    whole = file.content + said + len(said).to_bytes(_LENGTH, "little")
    path.write_bytes(whole + hashlib.sha256(whole).digest() + _MARK)


def read_sealed(path: Path, format: str) -> SealedFile:
    """Return the content of a sealed file after checking that it is undamaged.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    data = path.read_bytes()
    if len(data) <= _FOOTER or not data.endswith(_MARK):
        raise ArtifactError(
            f"{path}: damaged, or not compiled by nnpipe: the seal at its end is missing"
        )
    end = len(data) - _FOOTER
    if (
        hashlib.sha256(memoryview(data)[: end + _LENGTH]).digest()
        != data[end + _LENGTH : end + _LENGTH + _DIGEST]
    ):
        raise ArtifactError(f"{path}: damaged: its content does not agree with the seal at its end")
    start = end - int.from_bytes(data[end : end + _LENGTH], "little")
    try:
        if start < 0:
            raise ValueError("the description is longer than the file")
        said = parse_json(data[start:end])
        found, io, notes = said["format"], IOSpec.from_json(said["io"]), dict(said["notes"])
    except (ValueError, KeyError, TypeError, SpecMismatch) as error:
        raise ArtifactError(f"{path}: the description at its end is damaged: {error}") from None
    if found != format:
        raise ArtifactError(f"{path}: holds a model in the format {found}, not {format}")
    return SealedFile(data[:start], format, io, notes)
