"""Copies of Keras files in which the description of the network says something else."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def changed_copy(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Write a copy of a ``.keras`` file beside it, after a function has changed the descriptions
    of its layers.
    """
    other = path.with_name("changed.keras")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as copy:
        for item in source.namelist():
            content = source.read(item)
            if item == "config.json":
                structure = json.loads(content)
                change(structure["config"]["layers"])
                content = json.dumps(structure).encode()
            copy.writestr(item, content)
    return other
