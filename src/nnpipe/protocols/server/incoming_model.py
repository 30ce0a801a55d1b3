"""The reception of a model file, which writes and hashes parts as they arrive and resumes interrupted uploads.

The received part of a file is stored beside its destination as ``.SHA256.part``,
locked by the process that writes it.  If the connection is lost, the next upload
of the same content continues from there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnpipe.core.files import FULL, sha256_of
from nnpipe.core.leases import open_leased
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.conversation.payloads import ErrorPayload, ModelOffer
from nnpipe.protocols.server.disk_space import SpaceReservation

PART = ".part"
_BUFFERS = 4


class Refusal(Exception):
    """A request is answered with an ERROR; the conversation continues."""

    def __init__(self, code: ErrorCode, text: str = "") -> None:
        super().__init__(text)
        self.failure = ErrorPayload(code, text)


@dataclass(frozen=True)
class StoredModel:
    """A model that has been received completely.

    Attributes
    ----------
    path
        The path at which it is stored; another server may replace it there.
    loadable
        A second, private name of the same file, until the store is closed or another model comes.
    sha256
        The hash of the content of ``loadable``.
    """

    path: Path
    loadable: Path
    sha256: str


@dataclass
class PartialUpload:
    """The received part of a file, open and locked."""

    path: Path
    file: BinaryIO
    had: int

    @classmethod
    def of(cls, final: Path, offer: ModelOffer, place: Path) -> PartialUpload:
        """Open the part of an earlier upload if no other process uses it, otherwise a new file in a private folder."""
        path = final.with_name(f".{offer.sha256.hex()}{PART}")
        handle = open_leased(path)
        if handle is None:
            path = place / "upload"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        file = open(handle, "r+b", buffering=0)  # noqa: SIM115 - closed when the upload is complete or abandoned
        try:
            had = os.fstat(handle).st_size // 8 * 8
            had = had if had <= offer.size else 0
            file.truncate(had)
            file.seek(had)
        except BaseException:
            file.close()
            raise
        return cls(path, file, had)


class IncomingModel:
    """A model that is being received; a thread hashes each part while the next one is received and written.

    Without a ``partial``, the model is already complete, under its private name in ``place``.
    """

    def __init__(self, final: Path, place: Path, offer: ModelOffer, partial: PartialUpload | None, part: int) -> None:
        self._offer = offer
        self._kept = StoredModel(final, place / final.name, offer.sha256.hex())
        self._partial = partial
        self._at = offer.size if partial is None else partial.had
        self._digest = hashlib.sha256()
        self._unreadable: OSError | None = None
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview | bytes, memoryview | None] | None] = queue.SimpleQueue()
        self._current: memoryview | None = None
        self._part = part + 8
        self._made = 0
        self._thread: threading.Thread | None = None
        if partial is not None:
            self._room = SpaceReservation(partial.file.fileno(), partial.had, offer.size)
            self._thread = threading.Thread(target=self._hash, args=(partial,), name="nnpipe-store", daemon=True)
            self._thread.start()

    def buffer(self, length: int) -> memoryview:
        """Return memory for the next part; wait until one of the few buffers is free."""
        if self._made < _BUFFERS:
            self._made += 1
            self._current = np.empty(self._part, np.uint8).data
        else:
            self._current = self._free.get()
        return self._current[:length]

    def add(self, offset: int, content: memoryview | bytes) -> None:
        """Write a part of the file, which must follow the previous one; a thread hashes it meanwhile."""
        current, self._current = self._current, None
        if offset != self._at or self._at + len(content) > self._offer.size:
            raise Refusal(ErrorCode.MODEL, f"a part at byte {offset:,} came where {self._at:,} comes next")
        self._at += len(content)
        partial = self._partial
        if partial is not None:
            self._full.put((content, current))
            self._room.reach(self._at)
            try:
                _write_all(partial.file, content)
            except OSError as error:
                if error.errno in FULL:
                    partial.path.unlink(missing_ok=True)  # it is the file that fills the disk
                raise refusal_of(error) from None

    def finish(self) -> StoredModel:
        """Check the whole file and move it to its destination."""
        try:
            self.stop()
            self._place()
        except OSError as error:
            raise refusal_of(error) from None
        finally:
            self.close()
        return self._kept

    def _place(self) -> None:
        """Link the file under its names while no other process can write to it."""
        if self._unreadable is not None:
            raise self._unreadable
        if self._at != self._offer.size:
            raise Refusal(ErrorCode.MODEL, f"the file ends at byte {self._at:,} of {self._offer.size:,}")
        partial, kept = self._partial, self._kept
        if partial is None:
            return
        if self._digest.hexdigest() != kept.sha256:
            partial.path.unlink(missing_ok=True)
            raise Refusal(ErrorCode.DAMAGED, "send it again; if that does not help, make the model anew")
        _link(partial.path, kept.loadable)
        os.replace(partial.path, kept.path)

    def stop(self) -> None:
        """Stop hashing; the file then contains exactly the received bytes."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._full.put(None)
            thread.join()
            self._room.give_back(self._at)

    def close(self) -> None:
        """Release the file for other processes."""
        if self._partial is not None:
            self._partial.file.close()

    def _hash(self, partial: PartialUpload) -> None:
        try:
            self._hash_what_was_there(partial)
        except OSError as error:
            self._unreadable = error  # raised when the model is complete
        while (item := self._full.get()) is not None:
            content, memory = item
            self._digest.update(content)
            if memory is not None:
                self._free.put(memory)

    def _hash_what_was_there(self, partial: PartialUpload) -> None:
        had = partial.had
        if not had:
            return
        with open(partial.path, "rb", buffering=0) as file:
            if not os.path.sameopenfile(file.fileno(), partial.file.fileno()):
                raise OSError(errno.EIO, "the file was replaced")
            while had:
                block = file.read(min(had, 1 << 20))
                if not block:
                    raise OSError(errno.EIO, "the file has become shorter")
                self._digest.update(block)
                had -= len(block)


def use_again(final: Path, offer: ModelOffer, loadable: Path) -> bool:
    """Return whether the model is already complete; if so, give it the name ``loadable``, too."""
    try:
        if not final.is_file() or final.stat().st_size != offer.size:
            return False
        _link(final, loadable)
    except FileNotFoundError:  # removed in the meantime
        return False
    if loadable.stat().st_size == offer.size and sha256_of(loadable) == offer.sha256.hex():
        return True
    loadable.unlink()
    return False


def _link(path: Path, name: Path) -> None:
    """Link a file under a second name, or copy it if the file system has no links."""
    try:
        os.link(os.path.realpath(path), name)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, name)


def _write_all(file: BinaryIO, content: memoryview | bytes) -> None:
    content = memoryview(content)
    while len(content):
        content = content[file.write(content) :]


def refusal_of(error: OSError) -> Refusal:
    """Return the refusal for a client after an error of the file system."""
    if error.errno in FULL:
        return Refusal(ErrorCode.NO_SPACE, "the disk is full")
    return Refusal(ErrorCode.MODEL, f"it cannot be kept: {error.strerror or error}")
