"""Readers of the structure and the weights in Keras files, which do not need Keras.

A ``.keras`` archive holds the structure as JSON and the weights as HDF5.  An
``.h5`` file holds weights and, sometimes, the structure in an attribute.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, MissingDependency
from nnpipe.core.messages import LOCKED, one_line
from nnpipe.formats.file_types import check_there, file_type_hint
from nnpipe.formats.hdf5_heaps import check_text_heaps

CONFIG, WEIGHTS, METADATA = "config.json", "model.weights.h5", "metadata.json"
_CONFIG_LIMIT = 64 << 20
_EXPANSION_LIMIT = 16  # Keras does not compress, and compression makes weights smaller by about a tenth
_SLACK = 1 << 20
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_ZIP_MAGIC = b"PK"


def kind_of(path: Path) -> str:
    """Return ``"keras"``, ``"hdf5"`` or ``"else"`` according to the first bytes of a file.

    Raises
    ------
    ArtifactError
        If the file is missing or empty.
    """
    check_there(path)
    with open(path, "rb") as handle:
        start = handle.read(len(_HDF5_MAGIC))
    if not start:
        raise ArtifactError(f"{path}: the file is empty")
    if start.startswith(_ZIP_MAGIC):
        return "keras"
    return "hdf5" if start == _HDF5_MAGIC else "else"


def most_bytes(path: Path) -> int:
    """Return the largest number of bytes of weights that a file of this size can hold; a larger claim is false."""
    return path.stat().st_size * _EXPANSION_LIMIT + _SLACK


def structure_in(path: Path) -> bytes | None:
    """Return the JSON text of the model's structure; ``None`` if the file holds only weights.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or of another kind, or if its structure is larger than any model's.
    """
    kind = kind_of(path)
    if kind == "keras":
        with _archive(path) as archive:
            return _member(path, archive, CONFIG, _CONFIG_LIMIT)
    if kind == "hdf5":
        with open_weights(path) as file:
            return _attribute(path, file)
    raise ArtifactError(f"{path}: neither a .keras archive nor an .h5 file{file_type_hint(path, 'KerasModel')}")


@contextmanager
def open_weights(path: Path) -> Iterator[Any]:
    """Yield the HDF5 weights of a ``.keras`` or ``.h5`` file as an open ``h5py.File``.

    Raises
    ------
    MissingDependency
        If h5py is not installed.
    ArtifactError
        If the file is missing, damaged or of another kind.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency(f"h5py is needed here: pip install h5py ({error})") from None
    kind = kind_of(path)
    if kind == "keras":
        with _archive(path) as archive:
            source: Path | bytes = _member(path, archive, WEIGHTS, most_bytes(path))
    elif kind == "hdf5":
        source = path
    else:
        raise ArtifactError(f"{path}: not a Keras file, .keras or HDF5{file_type_hint(path, 'KerasModel')}")
    try:
        check_text_heaps(source)
        file = h5py.File(io.BytesIO(source) if isinstance(source, bytes) else source, "r")
    except BlockingIOError:
        raise ArtifactError(f"{path}: {LOCKED}") from None
    except Exception as error:
        raise ArtifactError(f"{path}: damaged or truncated: {one_line(error)}") from None
    with file:
        yield file


def _attribute(path: Path, file: Any) -> bytes | None:
    """Return the structure in an HDF5 file; ``None`` if it holds only weights."""
    try:
        if "model_config" not in file.attrs:
            return None
        claimed = file.attrs.get_id("model_config")
        size = math.prod(claimed.shape or ()) * claimed.dtype.itemsize
        text = file.attrs["model_config"] if size <= _CONFIG_LIMIT else bytes(0)
        data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    except Exception as error:  # h5py raises errors of many types for damaged content
        raise ArtifactError(f"{path}: its structure is damaged ({one_line(error)})") from None
    if max(len(data), size) > _CONFIG_LIMIT:
        raise ArtifactError(f"{path}: its structure is {max(len(data), size):,} bytes long, far more than any model's")
    return data


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ArtifactError(f"{path}: damaged or truncated archive ({one_line(error)})") from None
    with archive:
        yield archive


def _member(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ArtifactError(
            f"{path}: an archive without {name}, so not a Keras model{file_type_hint(path, 'KerasModel')}"
        ) from None
    if info.file_size > limit:
        raise ArtifactError(f"{path}: its {name} claims {info.file_size:,} bytes, far more than the file can hold")
    try:
        return archive.read(info)
    except Exception as error:  # zlib, checksums and encryption raise errors of different types
        raise ArtifactError(f"{path}: its {name} is damaged ({one_line(error)})") from None
