"""OpenVINO models in one file, so that weights cannot be parted from the model that they belong to.

OpenVINO writes two files, ``.xml`` and ``.bin``.  Here both lie uncompressed in
one ZIP archive, together with the names of inputs and outputs in their order:
OpenVINO itself lets a tensor bear several names or none.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec

_XML, _BIN, _IO = "model.xml", "model.bin", "io.json"
# One date for all, so that equal models are equal files.
_DATE = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20


@dataclass(frozen=True)
class OpenVINOFile:
    """The parts of a file.

    Attributes
    ----------
    xml, weights
        What OpenVINO calls its intermediate representation.
    io
        Inputs and outputs, the latter in the order of the model.
    taken
        Names of the inputs in the order of the model, which has none that it
        does not use.
    """

    xml: bytes
    weights: bytes
    io: IOSpec
    taken: tuple[str, ...]


def write_openvino(path: Path, xml: Path, io: IOSpec, taken: tuple[str, ...]) -> None:
    """Write one file.

    Parameters
    ----------
    path
        What to write.
    xml
        What OpenVINO wrote; the weights lie beside it, and are copied piece by piece.
    io, taken
        As :class:`OpenVINOFile` has them.
    """
    said = json.dumps(io.to_json() | {"taken": list(taken)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_IO, _DATE), said.encode())
        for name, part in ((_XML, xml), (_BIN, xml.with_suffix(".bin"))):
            info = zipfile.ZipInfo(name, _DATE)
            info.file_size = part.stat().st_size  # or else one of more than 2 GB is not foreseen
            with open(part, "rb") as source, archive.open(info, "w") as handle:
                shutil.copyfileobj(source, handle, _BLOCK)


def read_openvino(path: Path) -> OpenVINOFile:
    """Read the parts; checksums of the archive are checked.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another kind; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if sorted(info.filename for info in infos) != sorted([_XML, _BIN, _IO]):
                raise ArtifactError(f"{path}: an archive, but not of an OpenVINO model; compile it with nnpipe")
            # Nothing is compressed, so that what is unpacked is no larger than the file.
            if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
                raise ArtifactError(f"{path}: compressed or encrypted, which OpenVINO models written here never are")
            if sum(info.file_size for info in infos) > path.stat().st_size:
                raise ArtifactError(f"{path}: damaged: its parts are larger than the whole")
            said = json.loads(archive.read(_IO))
            io, taken = IOSpec.from_json(said), tuple(map(str, said["taken"]))
            return OpenVINOFile(archive.read(_XML), archive.read(_BIN), io, taken)
    except (
        zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, KeyError, TypeError,
    ) as error:  # fmt: skip
        if isinstance(error, (SpecMismatch, KeyError, TypeError)):
            raise ArtifactError(f"{path}: its description of inputs and outputs is damaged: {error}") from None
        cause = error or type(error).__name__
        raise ArtifactError(f"{path}: damaged, or no OpenVINO model: {cause}") from None
