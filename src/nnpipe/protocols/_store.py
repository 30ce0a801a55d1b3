"""Where a server keeps the model that a client sends: streamed to the disk, checked, and resumed.

What has come of a file lies beside its place as ``.SHA256.part`` until it is
whole.  If the line breaks, the next upload of the same content goes on from
there.  A file under the final name is whole, or a power cut spoiled it; either
shows when its SHA-256 is computed, which every reuse begins with.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import queue
import re
import shutil
import threading
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnpipe.core.files import sha256_of
from nnpipe.protocols._disk import Room
from nnpipe.protocols._frame import Code
from nnpipe.protocols._payloads import Failure, Offer

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_]{1,16}){0,2}")
_BUFFERS = 4
_RESERVE = 1 << 20
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Refusal(Exception):
    """A request that is answered with an ERROR; the conversation goes on."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(text)
        self.failure = Failure(code, text)


class ModelStore:
    """Keeps one model at a time.

    Parameters
    ----------
    place
        A file to write each model to, or a folder to keep them in by name.
    most
        Bytes of the largest model taken.
    part
        Most bytes that come at once.
    """

    def __init__(self, place: Path, most: int, part: int) -> None:
        self._place = place
        self._most = most
        self._part = part
        self._incoming: _Incoming | None = None

    def begin(self, offer: Offer) -> int:
        """Prepare to take a model; says how many of its bytes are here already.

        Raises
        ------
        Refusal
            If it is too large, or there is no room.
        """
        self.abandon()
        if offer.size > self._most:
            raise Refusal(Code.NO_SPACE, f"the model has {offer.size:,} bytes, this server takes {self._most:,}")
        final = self._path_for(offer)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.is_file() and final.stat().st_size == offer.size and sha256_of(final) == offer.sha256.hex():
                self._incoming = _Incoming(final, final, offer, offer.size, self._part)
                return offer.size
            partial = final.with_name(f".{offer.sha256.hex()}.part")
            had = partial.stat().st_size // 8 * 8 if partial.is_file() else 0
            had = had if had <= offer.size else 0
            if shutil.disk_usage(final.parent).free < offer.size - had + _RESERVE:
                raise Refusal(Code.NO_SPACE, f"{offer.size - had:,} bytes are wanted, the disk has no room for them")
            self._incoming = _Incoming(final, partial, offer, had, self._part)
        except OSError as error:
            raise _refusal(error) from None
        return had

    def buffer(self, length: int) -> memoryview:
        """Give memory for the next part: 8 bytes of offset, then the content."""
        if self._incoming is None:
            return memoryview(bytearray(length))
        return self._incoming.buffer(length)

    def add(self, offset: int, content: memoryview | bytes) -> None:
        """Take a part, which lies in what :meth:`buffer` gave or in memory of its own.

        Raises
        ------
        Refusal
            If it does not follow on what came before, or the disk is full.
        """
        incoming = self._incoming
        assert incoming is not None  # the rules of the conversation see to it
        try:
            incoming.add(offset, content)
        except Refusal:
            self.abandon()
            raise

    def finish(self) -> tuple[Path, str]:
        """Put the whole file in its place; gives its path and SHA-256.

        Raises
        ------
        Refusal
            If bytes are missing, or they are not what was announced.
        """
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        return incoming.finish()

    def abandon(self) -> None:
        """Stop taking; what has come stays for the next attempt."""
        if self._incoming is not None:
            with contextlib.suppress(OSError):
                self._incoming.stop()
            self._incoming = None

    def _path_for(self, offer: Offer) -> Path:
        if not self._place.is_dir():
            return self._place
        name, suffix = offer.description.get("name") or "", offer.description.get("suffix") or ""
        if not isinstance(name, str) or not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
            raise Refusal(Code.MODEL, "its name or suffix is not usable")
        if name and not _NAME.fullmatch(name):
            raise Refusal(Code.MODEL, "a model's name is letters, digits and _.+- and no path")
        return self._place / (name or offer.sha256.hex()[:16] + suffix)


class _Incoming:
    """A model that is on its way; a thread hashes each part while the next is received and written."""

    def __init__(self, final: Path, partial: Path, offer: Offer, had: int, part: int) -> None:
        self._final, self._partial, self._offer = final, partial, offer
        self._at = had
        self._digest = hashlib.sha256()
        self._unreadable: OSError | None = None
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview | bytes, memoryview | None] | None] = queue.SimpleQueue()
        self._current: memoryview | None = None
        self._part = part + 8
        self._made = 0
        self._file: BinaryIO | None = None
        if partial == final:
            return
        self._file = _open(partial, had)
        self._room = Room(self._file.fileno(), had, offer.size)
        self._thread = threading.Thread(target=self._hash, args=(had,), name="nnpipe-store", daemon=True)
        self._thread.start()

    def buffer(self, length: int) -> memoryview:
        if self._made < _BUFFERS:
            self._made += 1
            self._current = np.empty(self._part, np.uint8).data
        else:
            self._current = self._free.get()
        return self._current[:length]

    def add(self, offset: int, content: memoryview | bytes) -> None:
        current, self._current = self._current, None
        if offset != self._at or self._at + len(content) > self._offer.size:
            raise Refusal(Code.MODEL, f"a part at byte {offset:,} came where {self._at:,} comes next")
        self._at += len(content)
        if self._file is not None:
            self._full.put((content, current))
            self._room.reach(self._at)
            try:
                _write_all(self._file, content)
            except OSError as error:
                if error.errno in _FULL:
                    self._partial.unlink(missing_ok=True)  # it is what fills the disk
                raise _refusal(error) from None

    def finish(self) -> tuple[Path, str]:
        try:
            self.stop()
        except OSError as error:
            raise _refusal(error) from None
        if self._unreadable is not None:
            raise _refusal(self._unreadable)
        expected = self._offer.sha256.hex()
        if self._at != self._offer.size:
            raise Refusal(Code.MODEL, f"the file ends at byte {self._at:,} of {self._offer.size:,}")
        if self._partial == self._final:
            return self._final, expected
        if self._digest.hexdigest() != expected:
            self._partial.unlink(missing_ok=True)
            raise Refusal(Code.DAMAGED, "send it again; if that does not help, make the model anew")
        try:
            os.replace(self._partial, self._final)
        except OSError as error:
            raise _refusal(error) from None
        return self._final, expected

    def stop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._full.put(None)
            self._thread.join()
            self._room.give_back(self._at)
            file.close()

    def _hash(self, had: int) -> None:
        try:
            self._hash_what_was_there(had)
        except OSError as error:
            self._unreadable = error  # told when the model is whole
        while (item := self._full.get()) is not None:
            content, memory = item
            self._digest.update(content)
            if memory is not None:
                self._free.put(memory)

    def _hash_what_was_there(self, had: int) -> None:
        if not had:
            return
        with open(self._partial, "rb", buffering=0) as file:
            while had:
                block = file.read(min(had, 1 << 20))
                if not block:
                    raise OSError(errno.EIO, "the file has become shorter")
                self._digest.update(block)
                had -= len(block)


def _write_all(file: BinaryIO, content: memoryview | bytes) -> None:
    content = memoryview(content)
    while len(content):
        content = content[file.write(content) :]


def _open(path: Path, had: int) -> BinaryIO:
    file = open(path, "r+b" if had else "wb", buffering=0)  # noqa: SIM115 - closed where the model is whole or given up
    try:
        file.truncate(had)
        file.seek(had)
    except BaseException:
        file.close()
        raise
    return file


def _refusal(error: OSError) -> Refusal:
    if error.errno in _FULL:
        return Refusal(Code.NO_SPACE, "the disk is full")
    return Refusal(Code.MODEL, f"it cannot be kept: {error.strerror or error}")
