"""Read the JSON of untrusted result files, with limits that are checked before memory is allocated."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.ragged import Ragged
from nnpipe.measuring.json_arrays import LIMIT, unpack
from nnpipe.measuring.series import Series

COMPARISON = "comparison"  # the ``kind`` of a file with the runs of a comparison

# Limits on what is read from a file, so that no file can exhaust the reader's memory.
_FILE_LIMIT = 1 << 28  # bytes; ten million inferences need half of it
_NODE_LIMIT = 1 << 20  # JSON values; bulk arrays are text and count as one each
_ARRAYS_LIMIT = 1 << 30  # bytes of all arrays together, unpacked

_IN_USE: MutableMapping[bytes, npt.NDArray[Any]] = WeakValueDictionary()
"""Arrays that are in use, by the digest of their JSON: many results hold the same truth, which is kept once."""

T = TypeVar("T")

_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
_COLUMNS = {"resources": ("time_ns",), "paced": ("start_ns", "latency_ns", "asleep")}
_COLUMNS |= {"inference": ("start_ns", "latency_ns", "samples"), "energy": ("duration_ns", "calls", "joules")}


def read_json(path: Path) -> Any:
    """Read the JSON of a result file.

    Raises
    ------
    ArtifactError
        If it is missing, too large or malformed; the message does not name the file.
    """
    try:
        if not path.is_file():
            raise ArtifactError("no such result file")
        if path.stat().st_size > _FILE_LIMIT:
            raise ArtifactError("too large for a result file")
        return _parse(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror or error}") from None


def is_result(path: Path) -> bool:
    """Return whether a file is the result of a measurement or of a comparison, judged by its beginning."""
    try:
        data = read_json(path)
    except ArtifactError:
        return False
    return isinstance(data, dict) and "schema" in data and ("series" in data or data.get("kind") == COMPARISON)


class ArrayUnpacker:
    """Unpacks arrays, which are read-only, and raises an error if they are too large in total."""

    def __init__(self) -> None:
        self.left = _ARRAYS_LIMIT

    def __call__(self, packed: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the unpacked arrays by name."""
        found = {}
        for name in packed:
            data = typed(dict, packed, name)
            digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()
            array = _IN_USE.get(digest)
            if array is None:
                array = unpack(data, min(self.left, LIMIT))
                array.flags.writeable = False
                _IN_USE[digest] = array
            self.left -= array.nbytes
            found[name] = array
        return found


def series_of(data: Mapping[str, Any], arrays: ArrayUnpacker) -> dict[str, Series]:
    """Return the series of a result file; raise ``ValueError`` if a column is missing."""
    found = {name: Series(arrays(typed(dict, data, name))) for name in data}
    for name, columns in _COLUMNS.items():
        for column in columns:
            if name in found and column not in found[name]:
                raise ValueError(f"the series {name!r} has no column {column!r}")
    return found


def evaluation_of(data: Any, arrays: ArrayUnpacker) -> Evaluation | None:
    """Return the evaluation of a result file, if it has one."""
    if data is None:
        return None
    if not isinstance(data, dict):
        raise TypeError("'evaluation' should be an object")
    found = arrays(typed(dict, data, "arrays"))
    for name, array in found.items():
        if not array.ndim:
            raise ValueError(f"the evaluation's {name!r} has no axis for samples")
    ragged = {}
    for name in typed(dict, data, "ragged") if "ragged" in data else ():  # files of earlier versions have none
        rows = arrays(typed(dict, data["ragged"], name))
        ragged[name] = Ragged(rows["values"], rows["counts"])
    return Evaluation(
        typed(str, data, "task"),
        found,
        tuple(map(str, typed(list, data, "class_names"))),
        ragged,
        typed(dict, data, "settings") if "settings" in data else {},
    )


def typed(kind: type[T], data: Mapping[str, Any], name: str) -> T:
    """Return an entry after checking its type.

    Raises
    ------
    KeyError
        If the entry is missing.
    TypeError
        If it has another type.
    """
    value = data[name]
    if not isinstance(value, kind):
        raise TypeError(f"{name!r} should be {_KINDS[kind]}")
    return value


def _parse(content: bytes) -> Any:
    # Each JSON value but the first follows one of these characters.  A small file of many empty lists would otherwise
    # fill the memory.
    if sum(map(content.count, (b",", b":", b"[", b"{"))) > _NODE_LIMIT:
        raise ArtifactError("not a result file: too many values")
    try:
        return parse_json(content.decode("utf-8"), parse_float=_number)
    except ValueError as error:
        raise ArtifactError(f"not a result file: {error}") from None


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number")
    return number
