"""Digests of files, computed once and cached until a file changes.

They are stored in the user's cache (``$XDG_CACHE_HOME/nnpipe``, or ``~/.cache/nnpipe``), one file for each folder of
data.  If nothing can be written there, files are read every time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import write_text

_SCHEMA = 1
_LIMIT = 1 << 28
_SETTLED = 2_000_000_000  # ns; a file that changes twice within one tick of the clock looks unchanged
_BLOCK = 1 << 20

_Stamp = tuple[int, int, int, int]


def digests(paths: Sequence[Path]) -> list[str]:
    """Return a digest of the content of each file; only files without a cached digest are read."""
    if not paths:
        return []
    whole = [path.absolute() for path in paths]
    folder = Path(os.path.commonpath([path.parent for path in whole]))
    store = _store(folder)
    known = _known(store)
    found, kept = [], {}
    now = time.time_ns()
    for path in whole:
        name, stamp = os.path.relpath(path, folder), _stamp(path)
        digest = known[name][1] if name in known and known[name][0] == stamp else _digest(path)
        found.append(digest)
        if now - max(stamp[1], stamp[2]) > _SETTLED:
            kept[name] = (stamp, digest)
    if kept.items() - known.items():
        _keep(store, known | kept)
    return found


def _stamp(path: Path) -> _Stamp:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _store(folder: Path) -> Path:
    said = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(said) if Path(said).is_absolute() else Path.home() / ".cache"
    return base / "nnpipe" / "contents" / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}.json"


def _known(store: Path) -> dict[str, tuple[_Stamp, str]]:
    try:
        if store.stat().st_size > _LIMIT:
            return {}
        said = parse_json(store.read_bytes())
        if said["schema"] != _SCHEMA:
            return {}
        return {
            str(name): ((int(size), int(changed), int(moved), int(node)), str(digest))
            for name, (size, changed, moved, node, digest) in said["files"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}  # missing or damaged: files are read


def _keep(store: Path, known: dict[str, tuple[_Stamp, str]]) -> None:
    files = {name: [*stamp, digest] for name, (stamp, digest) in known.items()}
    with suppress(OSError, UnicodeError):
        write_text(store, json.dumps({"schema": _SCHEMA, "files": files}))
