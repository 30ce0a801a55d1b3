"""OpenVINO models in one file, so that a model and its weights stay together.

OpenVINO writes two files, ``.xml`` and ``.bin``.  nnpipe stores both uncompressed
in one ZIP archive, with the names of inputs and outputs in their order: in
OpenVINO, a tensor may have several names or none.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.stored_zip import ZIP_ERRORS, check_stored, write_stored

_XML, _BIN, _IO = "model.xml", "model.bin", "io.json"


@dataclass(frozen=True)
class OpenVINOFile:
    """The parts of a file.

    Attributes
    ----------
    xml, weights
        The two parts of OpenVINO's intermediate representation.
    io
        Inputs and outputs; outputs are in the model's order.
    taken
        Names of the inputs in the model's order, without inputs that it does not
        use.
    """

    xml: bytes
    weights: bytes
    io: IOSpec
    taken: tuple[str, ...]


def write_openvino(path: Path, xml: Path, io: IOSpec, taken: tuple[str, ...]) -> None:
    """Write a model to one file.

    Parameters
    ----------
    path
        The file to write.
    xml
        The ``.xml`` file that OpenVINO wrote; the weights beside it are copied in blocks.
    io, taken
        As in :class:`OpenVINOFile`.
    """
    said = json.dumps(io.to_json() | {"taken": list(taken)})
    write_stored(path, {_IO: said.encode(), _XML: xml, _BIN: xml.with_suffix(".bin")})


def read_openvino(path: Path) -> OpenVINOFile:
    """Return the parts of a file; the archive's checksums are verified.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if sorted(info.filename for info in infos) != sorted([_XML, _BIN, _IO]):
                raise ArtifactError(f"{path}: an archive, but not of an OpenVINO model; compile it with nnpipe")
            check_stored(path, archive, "OpenVINO models")
            said = parse_json(archive.read(_IO))
            io, taken = IOSpec.from_json(said), tuple(map(str, said["taken"]))
            return OpenVINOFile(archive.read(_XML), archive.read(_BIN), io, taken)
    except (*ZIP_ERRORS, KeyError, TypeError) as error:
        if isinstance(error, (SpecMismatch, KeyError, TypeError)):
            raise ArtifactError(f"{path}: its description of inputs and outputs is damaged: {error}") from None
        cause = error or type(error).__name__
        raise ArtifactError(f"{path}: damaged, or no OpenVINO model: {cause}") from None
