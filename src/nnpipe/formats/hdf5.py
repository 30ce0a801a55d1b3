"""Readers of weights and names in HDF5 files from untrusted sources.

They follow no links and open no other files.  They check the claimed size of an
attribute before they read it; callers of :func:`array` check the shape of a
dataset.  Callers open the file with h5py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_ATTRIBUTE_LIMIT = 1 << 20  # bytes of the names of layers or weights; far more than any real model has
_DEPTH_LIMIT = 64


class WeightsMismatch(Exception):
    """An error about weights in a file that do not belong to the model."""


def datasets(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the HDF5 dataset of each weight in a file of the layout of Keras 3.

    The state of the optimiser is left out.

    Raises
    ------
    ValueError
        If groups are nested too deeply, or if a member is a link or not an array of numbers in this file.
    """
    import h5py

    if prefix.count("/") > _DEPTH_LIMIT:
        raise ValueError(f"groups are nested more than {_DEPTH_LIMIT} deep")
    for name in group:
        path = f"{prefix}{name}"
        if path == "optimizer":
            continue
        item = child(group, name)
        if isinstance(item, h5py.Group):
            yield from datasets(item, path + "/")
        else:
            yield path, _checked(path, item)


def dataset(group: Any, path: str) -> Any:
    """Return the HDF5 dataset at a path of names of groups that ends with its own name.

    Raises
    ------
    WeightsMismatch
        If a part of the path is missing.
    ValueError
        If a part of the path is a link, or if the path does not lead to an array of numbers in this file.
    """
    for part in path.split("/"):
        group = child(group, part)
    return _checked(path, group)


def child(group: Any, name: str) -> Any:
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


def _checked(path: str, item: Any) -> Any:
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biuf":
        raise ValueError(f"{path} is not an array of numbers")
    if item.external or item.is_virtual:
        raise ValueError(f"{path} lies in another file, which is not followed")
    return item


def array(item: Any) -> np.ndarray:
    """Return the content of a dataset; the caller has checked its shape."""
    return np.asarray(item[()])


def names(group: Any, name: str) -> list[str]:
    """Return a list of names from the attribute ``name``; long lists are split over ``name0``, ``name1``, ...

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
        names += [text.decode("utf-8") if isinstance(text, bytes) else str(text) for text in group.attrs[part]]
    return names
