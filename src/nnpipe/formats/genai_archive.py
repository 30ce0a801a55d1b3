"""Models of onnxruntime-genai in one file, so that network, weights, configuration and tokenizer stay together.

The model builder of onnxruntime-genai writes a folder.  nnpipe stores its files uncompressed in one ZIP archive, with
the inputs and outputs of a session that generates with them.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.generation import TOKENS, generation_io
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.stored_zip import ZIP_ERRORS, check_stored, write_stored

GENAI = "genai"
"""The format of such an archive, as artifacts name it."""

_IO = "io.json"
_MOST_FILES, _LARGEST_IO, _BLOCK = 4096, 1 << 20, 1 << 20


def write_genai_archive(path: Path, folder: Path, io: IOSpec) -> None:
    """Write the files of a folder, without those of its own folders, to one archive."""
    files = {each.name: each for each in sorted(folder.iterdir()) if each.is_file()}
    write_stored(path, {_IO: json.dumps(io.to_json()).encode(), **files})


def io_of_genai_archive(path: Path) -> IOSpec:
    """Return the inputs and outputs that an archive states.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    return _read(path, None)


def unpack_genai_archive(path: Path, folder: Path) -> IOSpec:
    """Write the files of an archive to an empty folder, and return the inputs and outputs that it states.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    return _read(path, folder)


def _read(path: Path, folder: Path | None) -> IOSpec:
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            check_stored(path, archive, "models of onnxruntime-genai")
            infos = {info.filename: info for info in archive.infolist()}
            if _IO not in infos or len(infos) > _MOST_FILES or infos[_IO].file_size > _LARGEST_IO:
                raise ArtifactError(
                    f"{path}: an archive, but not of a model of onnxruntime-genai; build it with nnpipe"
                )
            io = IOSpec.from_json(parse_json(archive.read(_IO)))
            tokens = next((spec.shape[-1] for spec in io.outputs if spec.name == TOKENS and spec.shape), None)
            if tokens is None or io != generation_io(tokens):
                raise ArtifactError(f"{path}: does not state the inputs and outputs of a model that generates text")
            for name in infos if folder is not None else ():
                if Path(name).name != name or "\\" in name or name in (".", ".."):
                    raise ArtifactError(f"{path}: its entry {name[:60]!r} is no file of a flat folder")
                assert folder is not None
                with archive.open(name) as source, open(folder / name, "xb") as to:
                    shutil.copyfileobj(source, to, _BLOCK)
            return io
    except (SpecMismatch, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: its description of inputs and outputs is damaged: {error}") from None
    except ZIP_ERRORS as error:
        cause = error or type(error).__name__
        raise ArtifactError(f"{path}: damaged, or no model of onnxruntime-genai: {cause}") from None
