"""The reader of files that a plugin wrote into a folder, so that they can be shown safely.

Names and contents are untrusted.  Links, devices and pipes are listed but never
opened, and no file outside the folder is opened.  The amount of data is limited.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import quote

Kind = Literal["picture", "audio", "video", "table", "json", "text", "other"]

_MOST_SEEN = 100_000
_DEEPEST = 20
_MOST_TEXT = 1 << 18

# By file name extension: the MIME type and the possible first bytes.
_PICTURES = {
    ".png": ("image/png", (b"\x89PNG\r\n\x1a\n",)),
    ".jpg": ("image/jpeg", (b"\xff\xd8\xff",)),
    ".jpeg": ("image/jpeg", (b"\xff\xd8\xff",)),
    ".gif": ("image/gif", (b"GIF87a", b"GIF89a")),
    ".webp": ("image/webp", (b"RIFF",)),
    ".bmp": ("image/bmp", (b"BM",)),
    ".svg": ("image/svg+xml", ()),
}
_SOUNDS = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
}
_FILMS = {".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg"}
_TABLES = {".csv": ",", ".tsv": "\t"}
_TEXTS = frozenset(
    ".txt .text .log .md .rst .yaml .yml .toml .ini .xml .html .htm .xhtml .js .css .py .tex "
    ".jsonl .ndjson".split()
)
_INERT = frozenset(
    ".npz .npy .h5 .hdf5 .zip .gz .xz .tar .bin .onnx .tflite .pt .safetensors .txt .log .csv .tsv "
    ".json .jsonl .png .jpg .jpeg .gif .webp .bmp .wav .mp3 .ogg .oga .opus .flac .m4a .mp4 .m4v "
    ".webm "
    ".ogv".split()
)
"""Extensions of files in which a browser never runs code when it opens a link to them."""


@dataclass(frozen=True)
class OutputFile:
    """One file of a folder, or another entry such as a link.

    Parameters
    ----------
    name
        The path in the folder, with ``/``; it is unchanged, so it may contain any characters.
    size
        Size in bytes; -1 if the entry is not a regular file or cannot be read.
    kind
        The way to show it.
    mime
        MIME type of pictures, audio and video; empty for other kinds.
    content
        The whole content of a picture, audio, video or other file, or the beginning of a text;
        ``None`` if the file was not read.
    remark
        The reason why the file was not read, or not completely.
    """

    name: str
    size: int
    kind: Kind
    mime: str = ""
    content: bytes | None = None
    remark: str = ""

    @property
    def address(self) -> str | None:
        """The path as a URL relative to the folder; ``None`` if a browser might run code in the
        file.
        """
        inert = _get_extension(self.name) in _INERT
        return quote(os.fsencode(self.name)) if inert and not self.refused else None

    @property
    def refused(self) -> bool:
        """Whether the entry is not a regular file or cannot be read."""
        return self.size < 0


@dataclass
class ReadBudget:
    """The number of files and bytes that may still be read for a page; all folders of the page
    share it.
    """

    left: int = 48 << 20
    each: int = 16 << 20
    files: int = 1000

    def take(self, size: int) -> str:
        """Reserve bytes, and return the empty string; return the reason if the budget does not
        allow it.
        """
        if size > self.each:
            return f"larger than the {self.each >> 20} MiB of a file on this page"
        if size > self.left:
            return "the page is full"
        self.left -= size
        return ""


def read_output_files(folder: Path, budget: ReadBudget) -> tuple[list[OutputFile], int]:
    """Return the files below a folder and the number of files left out; a folder's own files
    come before subfolders.
    """
    found: list[OutputFile] = []
    more = 0
    for name, parent in _iter_entries(folder, found):
        if budget.files > 0:
            budget.files -= 1
            found.append(_read(name, parent, budget))
        else:
            more += 1
    return found, more


def _iter_entries(folder: Path, unreadable: list[OutputFile]) -> Iterator[tuple[str, int]]:
    """Yield the path of each entry that is not a folder, and the descriptor of its open folder;
    links are not followed.

    Folders that cannot be read are added to ``unreadable``.
    """
    seen = 0

    def add_unreadable(error: OSError) -> None:
        name = os.path.relpath(error.filename, folder)
        unreadable.append(OutputFile(name, -1, "other", remark=f"cannot be read: {error.strerror}"))

    for place, folders, files, descriptor in os.fwalk(
        folder, onerror=add_unreadable, follow_symlinks=False
    ):
        relative = os.path.relpath(place, folder)
        inner = "" if relative == "." else relative.replace(os.sep, "/") + "/"
        folders.sort()
        links = [
            name for name in folders if stat.S_ISLNK(os.lstat(name, dir_fd=descriptor).st_mode)
        ]
        closed = list(folders) if inner.count("/") >= _DEEPEST else links
        folders[:] = [name for name in folders if name not in closed]
        for name in sorted((*files, *closed)):
            seen += 1
            yield inner + name, descriptor
        if seen > _MOST_SEEN:
            return


def _read(name: str, parent: int, budget: ReadBudget) -> OutputFile:
    place = name.rpartition("/")[2]
    try:
        status = os.lstat(place, dir_fd=parent)
        if not stat.S_ISREG(status.st_mode):
            return OutputFile(name, -1, "other", remark=f"{_sort(status.st_mode)}, not followed")
        # The entry may have changed since: the open file is checked again, and O_NONBLOCK keeps a
        # pipe from blocking.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(place, flags, dir_fd=parent), "rb") as handle:
            status = os.fstat(handle.fileno())
            if not stat.S_ISREG(status.st_mode):
                return OutputFile(
                    name, -1, "other", remark=f"{_sort(status.st_mode)}, not followed"
                )
            head = handle.read(_MOST_TEXT)
            kind, mime, remark = _find_kind(name, head)
            whole = kind in ("picture", "audio", "video", "other")
            refusal = budget.take(status.st_size if whole else len(head))
            if refusal:
                return OutputFile(name, status.st_size, kind, remark=refusal)
            content = head + handle.read(max(0, status.st_size - len(head))) if whole else head
    except OSError as error:
        return OutputFile(name, -1, "other", remark=f"cannot be read: {error.strerror or error}")
    if len(content) < status.st_size and not whole:
        remark = f"the first {len(content):,} of {status.st_size:,} bytes"
    return OutputFile(name, status.st_size, kind, mime, content, remark)


def _find_kind(name: str, head: bytes) -> tuple[Kind, str, str]:
    ending = _get_extension(name)
    if ending in _PICTURES:
        mime, starts = _PICTURES[ending]
        if starts and not head.startswith(starts):
            return "other", "", f"not a picture, although its name ends in {ending}"
        return "picture", mime, ""
    if ending in _SOUNDS:
        return "audio", _SOUNDS[ending], ""
    if ending in _FILMS:
        return "video", _FILMS[ending], ""
    if ending in _TABLES:
        return "table", "", ""
    if ending == ".json":
        return "json", "", ""
    if ending in _TEXTS or _is_text(head):
        return "text", "", ""
    return "other", "", ""


def _get_extension(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _MOST_TEXT)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _sort(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a folder too deep",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")


def get_separator(name: str) -> str:
    """Return the character that separates the cells of a table file."""
    return _TABLES.get(_get_extension(name), ",")
