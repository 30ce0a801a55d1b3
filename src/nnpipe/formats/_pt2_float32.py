"""Exported PyTorch programs in bfloat16, rewritten to compute in float32."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.formats._pt2_archive import Entry, StoredPart

# ScalarType in torch/_export/serde/schema.py.
_BFLOAT16, _FLOAT32 = 13, 7
_OF_BITS = ("torch.ops.aten.view.dtype", "torch.ops.aten.view_copy.dtype")


def has_bfloat16(program: Mapping[str, Any]) -> bool:
    """Return whether any tensor of a program's graph, a weight or an intermediate value, is bfloat16."""
    values = program["graph_module"]["graph"]["tensor_values"]
    return any(meta["dtype"] == _BFLOAT16 for meta in values.values())


def in_float32(path: Path, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries of a checked program with float32 for bfloat16, in weights, values and casts.

    Every bfloat16 number is a float32 number with 16 more bits of zeros, so the weights are unchanged; results are
    rounded less than before.

    Raises
    ------
    ArtifactError
        If the program reads the bits of numbers, or its weights are damaged.
    """
    found = dict(entries)
    for name, content in entries.items():
        if name.startswith("models/") and isinstance(content, bytes):
            program = parse_json(content)
            if any(node["target"] in _OF_BITS for node in program["graph_module"]["graph"]["nodes"]):
                raise ArtifactError(f"{path}: reads the bits of numbers (view.dtype); it has no form in float32")
            found[name] = json.dumps(_widened(program)).encode()
        elif name.endswith("_config.json") and isinstance(content, bytes):
            found |= _widened_tensors(path, entries, name, parse_json(content))
    return found


def _widened(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _FLOAT32 if key in ("dtype", "as_scalar_type") and part == _BFLOAT16 else _widened(part)
            for key, part in value.items()
        }
    return [_widened(part) for part in value] if isinstance(value, list) else value


def _widened_tensors(path: Path, entries: Mapping[str, Entry], name: str, table: Any) -> dict[str, Entry]:
    """Return a table of weights or constants with the tensors that it names."""
    folder = name.rpartition("/")[0] + "/"
    types: dict[str, set[int]] = {}
    for entry in table["config"].values():
        types.setdefault(folder + entry["path_name"], set()).add(entry["tensor_meta"]["dtype"])
    found: dict[str, Entry] = {name: json.dumps(_widened(table)).encode()}
    for file, dtypes in types.items():
        if _BFLOAT16 not in dtypes:
            continue
        if len(dtypes) > 1:
            raise ArtifactError(f"{path}: weights of several element types share memory; it has no form in float32")
        stored = np.frombuffer(_bytes(path, entries[file]), "<u2")
        found[file] = (stored.astype("<u4") << np.uint32(16)).tobytes()
    return found


def _bytes(path: Path, entry: Entry) -> bytes:
    if not isinstance(entry, StoredPart):
        return entry
    try:
        with path.open("rb") as stream:
            stream.seek(entry.start)
            content = stream.read(entry.length)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot read it: {error.strerror or error}") from None
    if zlib.crc32(content) != entry.crc or len(content) % 2:
        raise ArtifactError(f"{path}: damaged, or replaced while it was read")
    return content
