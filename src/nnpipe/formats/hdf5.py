"""Looking into HDF5 files that may come from anybody.

No link is followed, no other file is opened, and what an attribute or a
dataset claims is known before memory is taken for it.  h5py is imported by
whoever opens the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_ATTRIBUTE_LIMIT = 1 << 20  # names of layers or weights; far above any real model
_DEPTH_LIMIT = 64


class WeightsMismatch(Exception):
    """The file's weights are not those of the model."""


def datasets(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List the model's weights in a file of the present layout; what an optimiser left there is passed over."""
    import h5py

    if prefix.count("/") > _DEPTH_LIMIT:
        raise ValueError("groups within groups without end")
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
    """Return an array of numbers by the names of groups and its own."""
    for part in path.split("/"):
        group = child(group, part)
    return _checked(path, group)


def child(group: Any, name: str) -> Any:
    """Return a member of a group unless it is a link, which may lead to another file."""
    import h5py

    link = group.get(name, getclass=True, getlink=True) if isinstance(group, h5py.Group) else None
    if link is None:
        raise WeightsMismatch(f"{name} is announced and missing")
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
    """Read a dataset; whoever calls this has looked at its shape."""
    return np.asarray(item[()])


def names(group: Any, name: str) -> list[str]:
    """Read a list of names; long ones are spread over ``name0``, ``name1``, ..."""
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
