"""Short digests of data, which notice a change at a cost that does not depend on the size of the
data.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

_WHOLE = 16_000_000
"""The size in bytes up to which a whole array is read; of a larger one, evenly spaced samples of
this total size.
"""

_ITEMS = 1000
"""The greatest number of items of a list that are read."""


def compute_digest(columns: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits for arrays and lists by name; of large ones, only some
    samples are read.
    """
    found = hashlib.sha256()
    for name in sorted(columns):
        value = columns[name]
        found.update(repr(name).encode())
        found.update(
            _digest_array(value)
            if hasattr(value, "dtype") and hasattr(value, "shape")
            else _list(value)
        )
    return found.hexdigest()[:16]


def _digest_array(value: Any) -> bytes:
    array = np.asarray(value)
    digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    if array.nbytes > _WHOLE and len(array):
        rows = max(1, int(_WHOLE // max(1, array[0].nbytes)))
        array = array[np.unique(np.linspace(0, len(array) - 1, rows).astype(np.int64))]
    digest.update(
        repr(array.tolist()).encode()
        if array.dtype.hasobject
        else np.ascontiguousarray(array).tobytes()
    )
    return digest.digest()


def _list(value: Any) -> bytes:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    digest = hashlib.sha256(str(len(items)).encode())
    for place in np.unique(
        np.linspace(0, len(items) - 1, min(len(items), _ITEMS)).astype(np.int64)
    ).tolist():
        item = items[place]
        digest.update(
            _digest_array(item)
            if hasattr(item, "dtype") and hasattr(item, "shape")
            else _encode_item(item)
        )
    return digest.digest()


def _encode_item(item: Any) -> bytes:
    if isinstance(item, (str, bytes, bool, int, float, type(None))):
        return repr(item).encode()
    if isinstance(item, (list, tuple)):
        return _list(item)
    if isinstance(item, Mapping):
        return compute_digest({str(key): value for key, value in item.items()}).encode()
    return type(item).__qualname__.encode()  # its repr may hold an address


def describe_callable(value: Any) -> str:
    """Return the name of a function, or of an object with its settings; equal ones have equal
    names in any process.
    """
    if isinstance(value, functools.partial):
        return (
            f"{describe_callable(value.func)} with "
            f"{compute_digest({'': list(value.args), **value.keywords})}"
        )
    # other attributes of an object may change
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return f"{type(value).__qualname__}({', '.join(f'{n}={_describe_value(v)}' for n, v in vars(value).items())})"


def _describe_value(value: Any) -> str:
    plain = isinstance(value, (str, bool, int, float, type(None)))
    return repr(value) if plain else compute_digest({"": value})
