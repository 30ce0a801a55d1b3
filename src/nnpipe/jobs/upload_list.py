"""List the files and folders to send with a job to another machine, with the targets of links."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError

_LARGEST = 1 << 30  # bytes


def to_send(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return each folder and file with its name on the other machine, relative to the job's working directory.

    A folder comes before its content.  Links are replaced by their targets, which
    do not exist on the other machine.  Special files and Python's compiled files
    are left out.

    Raises
    ------
    ConfigError
        If a path is missing or cannot be read, a folder contains itself, or the total size is too large.
    """
    found, size = [], 0
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: no such file or folder to send")
        called = Path(os.path.normpath(path.absolute())).name  # the name of a link itself, which scripts use
        try:
            for file, name in _below(path, called, ()):
                size += 0 if file.is_dir() else file.stat().st_size
                if size > _LARGEST:
                    raise ConfigError(f"{path}: more than {_LARGEST >> 30} GiB to send; put data there by other means")
                if not os.access(file, os.R_OK):
                    raise ConfigError(f"{file}: cannot be read, and so not be sent")
                found.append((file, name))
        except OSError as error:
            raise ConfigError(f"{error.filename or path}: cannot be sent: {error.strerror or error}") from None
    return found


def _below(path: Path, name: str, above: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, name
    elif path.is_dir():
        whole = path.resolve()
        if whole in above:
            raise ConfigError(f"{path}: a link to a folder that it lies in; it cannot be sent")
        yield path, name
        for inner in sorted(path.iterdir()):
            if inner.name != "__pycache__":
                yield from _below(inner, f"{name}/{inner.name}", (*above, whole))
