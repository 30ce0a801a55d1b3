"""Redaction of paths in messages to clients, which must not learn where files are on the server."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

_PATH = re.compile(r"(?<![\w./\\:~-])(?:[A-Za-z]:[\\/]|/)[^\s'\"<>|:;,()\[\]{}]+")


def without_folders(text: str, *folders: Path) -> str:
    """Return a text in which the paths of files on this machine are shortened to their names.

    Names of a model's parts that look like paths (``/conv1/Conv``) are kept,
    since they do not begin with a folder of this machine.

    Parameters
    ----------
    text
        The message.
    folders
        Further folders to remove, whose names may contain any character, such as spaces.
    """
    known = {os.fspath(folder.absolute()) for folder in (*folders, Path.home(), Path.cwd(), Path(sys.prefix))}
    known |= {os.path.realpath(folder) for folder in known} | {tempfile.gettempdir()}
    for folder in sorted(known, key=len, reverse=True):
        if len(Path(folder).parts) > 1:
            text = text.replace(folder + os.sep, "")
    return _PATH.sub(_last, text)


def _last(found: re.Match[str]) -> str:
    path = found[0]
    parts = re.split(r"[\\/]+", path.rstrip("\\/"))
    if path.startswith("/") and not (len(parts) > 2 and Path("/", parts[1]).is_dir()):
        return path
    return parts[-1]
