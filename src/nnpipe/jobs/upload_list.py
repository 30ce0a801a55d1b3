"""What goes with a job to another machine: files and folders, whole, with what links lead to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError

_LARGEST = 1 << 30  # bytes


def to_send(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Pair folders and files with their names there, relative to where the job runs: folders before what is in them.

    Links stand for what they lead to, for that is not there; what is no file
    and no folder stays here, and so does what Python compiled.

    Raises
    ------
    ConfigError
        If something is not there or cannot be read, a folder holds itself, or it is too much to send.
    """
    found, size = [], 0
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: no such file or folder to send")
        called = Path(os.path.normpath(path.absolute())).name  # of a link its own name, under which scripts look for it
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
