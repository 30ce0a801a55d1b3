"""The store in which a server keeps the models that clients send.

A file with the final name is complete, unless a power failure damaged it.  Its
SHA-256, which is verified before every reuse, shows this.

Several servers may keep their models in one folder, and another server may
replace the file of a name at any time.  So a model is loaded by a second name in a
private folder of the worker, which belongs to the same file that was hashed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import queue
import re
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.files import FULL, compute_sha256
from nnpipe.core.leases import (
    LeasedFolder,
    open_leased,
    remove_abandoned_files,
    remove_abandoned_folders,
)
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.conversation.payloads import ErrorPayload, ModelOffer

_KEEP_SIZE = 1  # reserving does not change the file's size, which shows how much has been written
# bytes reserved at a time; at most this much stays reserved if the process is killed
_WINDOW = 8 << 20


class SpaceReservation:
    """Reserves disk space ahead of writing, if the system can.

    Without it, writing takes half as long again, since the file system allocates
    space for each write.  A failure is ignored: the write will report it.

    Parameters
    ----------
    descriptor
        The file descriptor.
    at
        The position at which writing begins, in bytes.
    size
        The size of the whole file in bytes; nothing is reserved beyond it.
    """

    def __init__(self, descriptor: int, at: int, size: int) -> None:
        self._descriptor = descriptor
        self._end = at
        self._size = size

    def reserve(self, end: int) -> None:
        """Reserve space up to this byte."""
        while self._end < end:
            until = min(self._end + _WINDOW, self._size)
            if until <= self._end or not _reserve_space(
                self._descriptor, self._end, until - self._end
            ):
                self._end = self._size  # do not try again
                return
            self._end = until

    def release(self, end: int) -> None:
        """Release the reserved space after the first ``end`` bytes, which have been written."""
        if self._end > end:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)


def _reserve_space(descriptor: int, at: int, length: int) -> bool:
    fallocate = _load_fallocate()
    return fallocate is not None and fallocate(descriptor, _KEEP_SIZE, at, length) == 0


@functools.cache
def _load_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's ``fallocate``; the portable function of ``os`` makes the file longer, and
    may write zeros.
    """
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    call: Callable[[int, int, int, int], int] = function
    return call


# The reception of a model file, which writes and hashes parts as they arrive and resumes
# interrupted uploads.
#
# The received part of a file is stored beside its destination as ``.SHA256.part``, locked by the
# process that writes it.  If the connection is lost, the next upload of the same content continues
# from there.

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
    def open_for(cls, final: Path, offer: ModelOffer, place: Path) -> PartialUpload:
        """Open the part of an earlier upload if no other process uses it, otherwise a new file
        in a private folder.
        """
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
    """A model that is being received; a thread hashes each part while the next one is received and
    written.

    Without a ``partial``, the model is already complete, under its private name in ``place``.
    """

    def __init__(
        self, final: Path, place: Path, offer: ModelOffer, partial: PartialUpload | None, part: int
    ) -> None:
        self._offer = offer
        self._kept = StoredModel(final, place / final.name, offer.sha256.hex())
        self._partial = partial
        self._at = offer.size if partial is None else partial.had
        self._digest = hashlib.sha256()
        self._unreadable: OSError | None = None
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview | bytes, memoryview | None] | None] = (
            queue.SimpleQueue()
        )
        self._current: memoryview | None = None
        self._part = part + 8
        self._made = 0
        self._thread: threading.Thread | None = None
        if partial is not None:
            self._room = SpaceReservation(partial.file.fileno(), partial.had, offer.size)
            self._thread = threading.Thread(
                target=self._hash_parts, args=(partial,), name="nnpipe-store", daemon=True
            )
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
        """Write a part of the file, which must follow the previous one; a thread hashes it
        meanwhile.
        """
        current, self._current = self._current, None
        if offset != self._at or self._at + len(content) > self._offer.size:
            raise Refusal(
                ErrorCode.MODEL, f"a part at byte {offset:,} came where {self._at:,} comes next"
            )
        self._at += len(content)
        partial = self._partial
        if partial is not None:
            self._full.put((content, current))
            self._room.reserve(self._at)
            try:
                _write_all(partial.file, content)
            except OSError as error:
                if error.errno in FULL:
                    partial.path.unlink(missing_ok=True)  # it is the file that fills the disk
                raise create_refusal(error) from None

    def finish(self) -> StoredModel:
        """Check the whole file and move it to its destination."""
        try:
            self.stop()
            self._link_file()
        except OSError as error:
            raise create_refusal(error) from None
        finally:
            self.close()
        return self._kept

    def _link_file(self) -> None:
        """Link the file under its names while no other process can write to it."""
        if self._unreadable is not None:
            raise self._unreadable
        if self._at != self._offer.size:
            raise Refusal(
                ErrorCode.MODEL, f"the file ends at byte {self._at:,} of {self._offer.size:,}"
            )
        partial, kept = self._partial, self._kept
        if partial is None:
            return
        if self._digest.hexdigest() != kept.sha256:
            partial.path.unlink(missing_ok=True)
            raise Refusal(
                ErrorCode.DAMAGED, "send it again; if that does not help, make the model anew"
            )
        _link(partial.path, kept.loadable)
        os.replace(partial.path, kept.path)

    def stop(self) -> None:
        """Stop hashing; the file then contains exactly the received bytes."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._full.put(None)
            thread.join()
            self._room.release(self._at)

    def close(self) -> None:
        """Release the file for other processes."""
        if self._partial is not None:
            self._partial.file.close()

    def _hash_parts(self, partial: PartialUpload) -> None:
        try:
            self._hash_existing(partial)
        except OSError as error:
            self._unreadable = error  # raised when the model is complete
        while (item := self._full.get()) is not None:
            content, memory = item
            self._digest.update(content)
            if memory is not None:
                self._free.put(memory)

    def _hash_existing(self, partial: PartialUpload) -> None:
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


def reuse_model(final: Path, offer: ModelOffer, loadable: Path) -> bool:
    """Return whether the model is already complete; if so, give it the name ``loadable``, too."""
    try:
        if not final.is_file() or final.stat().st_size != offer.size:
            return False
        _link(final, loadable)
    except FileNotFoundError:  # removed in the meantime
        return False
    if loadable.stat().st_size == offer.size and compute_sha256(loadable) == offer.sha256.hex():
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


def create_refusal(error: OSError) -> Refusal:
    """Return the refusal for a client after an error of the file system."""
    if error.errno in FULL:
        return Refusal(ErrorCode.NO_SPACE, "the disk is full")
    return Refusal(ErrorCode.MODEL, f"it cannot be kept: {error.strerror or error}")


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_]{1,16}){0,2}")
_RESERVE = 1 << 20
_PREFIX = ".nnpipe-serving-"


class ModelStore:
    """Keeps one model at a time.

    Parameters
    ----------
    place
        The file to which each model is written, or a folder in which they are kept by name.
    most
        The size limit of a model in bytes.
    part
        The size limit of a part in bytes.
    """

    def __init__(self, place: Path, most: int, part: int) -> None:
        self._place = place
        self._most = most
        self._part = part
        self._incoming: IncomingModel | None = None
        self._own: LeasedFolder | None = None
        self._models = 0

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that contain models while this store is used, the inner ones first."""
        own = () if self._own is None else (self._own.path / str(self._models), self._own.path)
        return (*own, self._place, self._place.parent)

    def begin(self, offer: ModelOffer) -> int:
        """Prepare to receive a model, and return how many of its bytes are already here.

        The previous model, if any, must not be used any longer.

        Raises
        ------
        Refusal
            If the model is too large, or the disk has not enough space.
        """
        self.abandon()
        if offer.size > self._most:
            raise Refusal(
                ErrorCode.NO_SPACE,
                f"the model has {offer.size:,} bytes, this server takes {self._most:,}",
            )
        final = self._build_path(offer)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            place = self._create_folder(final)
            if reuse_model(final, offer, place / final.name):
                self._incoming = IncomingModel(final, place, offer, None, self._part)
                return offer.size
            partial = PartialUpload.open_for(final, offer, place)
            try:
                if shutil.disk_usage(final.parent).free < offer.size - partial.had + _RESERVE:
                    wanted = offer.size - partial.had
                    raise Refusal(
                        ErrorCode.NO_SPACE,
                        f"{wanted:,} bytes are wanted, the disk has no room for them",
                    )
                self._incoming = IncomingModel(final, place, offer, partial, self._part)
            except BaseException:
                if not partial.had:
                    partial.path.unlink(missing_ok=True)
                partial.file.close()
                raise
        except OSError as error:
            raise create_refusal(error) from None
        return partial.had

    def _create_folder(self, final: Path) -> Path:
        """Return an empty folder on the same disk, and remove the content of earlier ones."""
        if self._own is None:
            remove_abandoned_folders(final.parent, _PREFIX)
            self._own = LeasedFolder(final.parent, _PREFIX)
        for before in self._own.path.iterdir():
            shutil.rmtree(before, ignore_errors=True)
        # a path is never reused, since a library with that path may still be open
        self._models += 1
        place = self._own.path / str(self._models)
        place.mkdir()
        return place

    def buffer(self, length: int) -> memoryview:
        """Return memory for the next part: 8 bytes of offset, then the content."""
        if self._incoming is None:
            return memoryview(bytearray(length))
        return self._incoming.buffer(length)

    def add(self, offset: int, content: memoryview | bytes) -> None:
        """Write a part, which is in the memory of :meth:`buffer` or in its own.

        Raises
        ------
        Refusal
            If the part does not follow the previous one, or the disk is full.
        """
        incoming = self._incoming
        assert incoming is not None  # ensured by the rules of the conversation
        try:
            incoming.add(offset, content)
        except Refusal:
            self.abandon()
            raise

    def finish(self) -> StoredModel:
        """Check the complete file and move it to its destination.

        Raises
        ------
        Refusal
            If bytes are missing, or their hash is wrong.
        """
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        return incoming.finish()

    def abandon(self) -> None:
        """Stop the upload; the received part is kept for the next attempt."""
        if self._incoming is not None:
            with contextlib.suppress(OSError):
                self._incoming.stop()
            self._incoming.close()
            self._incoming = None

    def describe(self, kept: StoredModel, description: bytes) -> None:
        """Write a model's description beside it, atomically."""
        written = kept.loadable.with_name("description")
        # written again for each use, so it need not be flushed to the disk
        written.write_bytes(description)
        os.replace(written, get_sidecar_path(kept.path))

    def close(self) -> None:
        """Stop an upload, and release the loaded model."""
        self.abandon()
        if self._own is not None:
            self._own.close()
            self._own = None

    def _build_path(self, offer: ModelOffer) -> Path:
        if not self._place.is_dir():
            return self._place
        name, suffix = offer.description.get("name") or "", offer.description.get("suffix") or ""
        if (
            not isinstance(name, str)
            or not isinstance(suffix, str)
            or not _SUFFIX.fullmatch(suffix)
        ):
            raise Refusal(ErrorCode.MODEL, "its name or suffix is not usable")
        if name and not _NAME.fullmatch(name):
            raise Refusal(ErrorCode.MODEL, "a model's name is letters, digits and _.+- and no path")
        return self._place / (name or offer.sha256.hex()[:16] + suffix)


def remove_leftovers(place: Path) -> None:
    """Remove the files of killed servers from the folder of models, except for uploads that can
    be resumed.
    """
    folder = place if place.is_dir() else place.parent
    remove_abandoned_folders(folder, _PREFIX)
    remove_abandoned_files(folder, ".", PART)
