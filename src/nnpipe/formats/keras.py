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

import numpy as np

from nnpipe.core.errors import ArtifactError, MissingDependency
from nnpipe.core.messages import LOCKED, format_one_line
from nnpipe.formats.file_types import check_there, describe_file_type
from nnpipe.formats.hdf5_heaps import check_text_heaps

CONFIG, WEIGHTS, METADATA = "config.json", "model.weights.h5", "metadata.json"
_CONFIG_LIMIT = 64 << 20
# Keras does not compress, and compression makes weights smaller by about a tenth
_EXPANSION_LIMIT = 16
_SLACK = 1 << 20
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_ZIP_MAGIC = b"PK"


def get_file_kind(path: Path) -> str:
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


def compute_max_bytes(path: Path) -> int:
    """Return the largest number of bytes of weights that a file of this size can hold; a larger
    claim is false.
    """
    return path.stat().st_size * _EXPANSION_LIMIT + _SLACK


def read_structure(path: Path) -> bytes | None:
    """Return the JSON text of the model's structure; ``None`` if the file holds only weights.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or of another kind, or if its structure is larger than any
        model's.
    """
    kind = get_file_kind(path)
    if kind == "keras":
        with _open_archive(path) as archive:
            return _read_member(path, archive, CONFIG, _CONFIG_LIMIT)
    if kind == "hdf5":
        with open_weights(path) as file:
            return _read_structure_attribute(path, file)
    raise ArtifactError(
        f"{path}: neither a .keras archive nor an .h5 file{describe_file_type(path, 'KerasModel')}"
    )


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
    kind = get_file_kind(path)
    if kind == "keras":
        with _open_archive(path) as archive:
            source: Path | bytes = _read_member(path, archive, WEIGHTS, compute_max_bytes(path))
    elif kind == "hdf5":
        source = path
    else:
        raise ArtifactError(
            f"{path}: not a Keras file, .keras or HDF5{describe_file_type(path, 'KerasModel')}"
        )
    try:
        check_text_heaps(source)
        file = h5py.File(io.BytesIO(source) if isinstance(source, bytes) else source, "r")
    except BlockingIOError:
        raise ArtifactError(f"{path}: {LOCKED}") from None
    except Exception as error:
        raise ArtifactError(f"{path}: damaged or truncated: {format_one_line(error)}") from None
    with file:
        yield file


def _read_structure_attribute(path: Path, file: Any) -> bytes | None:
    """Return the structure in an HDF5 file; ``None`` if it holds only weights."""
    try:
        if "model_config" not in file.attrs:
            return None
        claimed = file.attrs.get_id("model_config")
        size = math.prod(claimed.shape or ()) * claimed.dtype.itemsize
        text = file.attrs["model_config"] if size <= _CONFIG_LIMIT else bytes(0)
        data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    except Exception as error:  # h5py raises errors of many types for damaged content
        raise ArtifactError(
            f"{path}: its structure is damaged ({format_one_line(error)})"
        ) from None
    if max(len(data), size) > _CONFIG_LIMIT:
        raise ArtifactError(
            f"{path}: its structure is {max(len(data), size):,} bytes long, far more than any "
            f"model's"
        )
    return data


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ArtifactError(
            f"{path}: damaged or truncated archive ({format_one_line(error)})"
        ) from None
    with archive:
        yield archive


def _read_member(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ArtifactError(
            f"{path}: an archive without {name}, so not a Keras "
            f"model{describe_file_type(path, 'KerasModel')}"
        ) from None
    if info.file_size > limit:
        raise ArtifactError(
            f"{path}: its {name} claims {info.file_size:,} bytes, far more than the file can hold"
        )
    try:
        return archive.read(info)
    except Exception as error:  # zlib, checksums and encryption raise errors of different types
        raise ArtifactError(f"{path}: its {name} is damaged ({format_one_line(error)})") from None


# Readers of weights and names in HDF5 files from untrusted sources.
#
# They follow no links and open no other files.  They check the claimed size of an attribute before
# they read it; callers of :func:`read_array` check the shape of a dataset.  Callers open the file
# with h5py.

# bytes of the names of layers or weights; far more than any real model has
_ATTRIBUTE_LIMIT = 1 << 20
_DEPTH_LIMIT = 64


class WeightsMismatch(Exception):
    """An error about weights in a file that do not belong to the model."""


def iterate_datasets(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the HDF5 dataset of each weight in a file of the layout of Keras 3.

    The state of the optimiser is left out.

    Raises
    ------
    ValueError
        If groups are nested too deeply, or if a member is a link or not an array of numbers in this
        file.
    """
    import h5py

    if prefix.count("/") > _DEPTH_LIMIT:
        raise ValueError(f"groups are nested more than {_DEPTH_LIMIT} deep")
    for name in group:
        path = f"{prefix}{name}"
        if path == "optimizer":
            continue
        item = get_member(group, name)
        if isinstance(item, h5py.Group):
            yield from iterate_datasets(item, path + "/")
        else:
            yield path, _check_dataset(path, item)


def get_dataset(group: Any, path: str) -> Any:
    """Return the HDF5 dataset at a path of names of groups that ends with its own name.

    Raises
    ------
    WeightsMismatch
        If a part of the path is missing.
    ValueError
        If a part of the path is a link, or if the path does not lead to an array of numbers in this
        file.
    """
    for part in path.split("/"):
        group = get_member(group, part)
    return _check_dataset(path, group)


def get_member(group: Any, name: str) -> Any:
    """Return a member of a group.

    Raises
    ------
    WeightsMismatch
        If the group has no such member.
    ValueError
        If the member is a link, which may lead to another file.
    """
    import h5py

    link = group.get(name, getclass=True, getlink=True) if isinstance(group, h5py.Group) else None
    if link is None:
        raise WeightsMismatch(f"{name} is listed in the file, but missing")
    if link is not h5py.HardLink:
        raise ValueError(f"{name} is a link, which is not followed")
    return group[name]


def _check_dataset(path: str, item: Any) -> Any:
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biuf":
        raise ValueError(f"{path} is not an array of numbers")
    if item.external or item.is_virtual:
        raise ValueError(f"{path} lies in another file, which is not followed")
    return item


def read_array(item: Any) -> np.ndarray:
    """Return the content of a dataset; the caller has checked its shape."""
    return np.asarray(item[()])


def read_names(group: Any, name: str) -> list[str]:
    """Return a list of names from the attribute ``name``; long lists are split over ``name0``,
    ``name1``, ...

    Raises
    ------
    ValueError
        If an attribute is longer than the names of any real model.
    """
    parts = [name] if name in group.attrs else []
    while name not in group.attrs and f"{name}{len(parts)}" in group.attrs:
        parts.append(f"{name}{len(parts)}")
    names: list[str] = []
    for part in parts:
        attribute = group.attrs.get_id(part)
        if math.prod(attribute.shape or ()) * attribute.dtype.itemsize > _ATTRIBUTE_LIMIT:
            raise ValueError(f"{part} is too long")
        names += [
            text.decode("utf-8") if isinstance(text, bytes) else str(text)
            for text in group.attrs[part]
        ]
    return names
