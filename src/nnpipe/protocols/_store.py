"""Where a server keeps the model that a client sends: streamed to the disk, checked, and resumed.

What has come of a file lies beside its place as ``.SHA256.part`` until it is
whole, locked by whoever writes it.  If the line breaks, the next upload of the
same content goes on from there.  A file under the final name is whole, or a
power cut spoiled it; either shows when its SHA-256 is computed, which every
reuse begins with.

Several servers may keep their models in one folder, and another one may put
other content under the same name at any time.  So a model is loaded from a
name in a folder of the worker's own, which leads to the very file that was
hashed.
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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnpipe.core.artifact import sidecar_of
from nnpipe.core.files import sha256_of
from nnpipe.core.leases import LeasedFolder, open_leased, sweep, sweep_files
from nnpipe.protocols._disk import Room
from nnpipe.protocols._frame import Code
from nnpipe.protocols._payloads import Failure, Offer

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_]{1,16}){0,2}")
_BUFFERS = 4
_RESERVE = 1 << 20
_PREFIX, _PART = ".nnpipe-serving-", ".part"
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Refusal(Exception):
    """A request that is answered with an ERROR; the conversation goes on."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(text)
        self.failure = Failure(code, text)


@dataclass(frozen=True)
class Kept:
    """A model that has come whole.

    Attributes
    ----------
    path
        Where it is kept; another server may put another model there.
    loadable
        The same file under a name of its own, until the store is closed or another model comes.
    sha256
        Of the content of ``loadable``.
    """

    path: Path
    loadable: Path
    sha256: str


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
        self._own: LeasedFolder | None = None
        self._models = 0

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where models lie while this store is used; the inner ones first."""
        own = () if self._own is None else (self._own.path / str(self._models), self._own.path)
        return (*own, self._place, self._place.parent)

    def begin(self, offer: Offer) -> int:
        """Prepare to take a model; says how many of its bytes are here already.

        The model before, if there was one, must not be used any longer.

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
            place = self._place_of_its_own(final)
            if _use_again(final, offer, place / final.name):
                self._incoming = _Incoming(final, place, offer, None, self._part)
                return offer.size
            partial = _Partial.of(final, offer, place)
            try:
                if shutil.disk_usage(final.parent).free < offer.size - partial.had + _RESERVE:
                    wanted = offer.size - partial.had
                    raise Refusal(Code.NO_SPACE, f"{wanted:,} bytes are wanted, the disk has no room for them")
                self._incoming = _Incoming(final, place, offer, partial, self._part)
            except BaseException:
                if not partial.had:
                    partial.path.unlink(missing_ok=True)
                partial.file.close()
                raise
        except OSError as error:
            raise _refusal(error) from None
        return partial.had

    def _place_of_its_own(self, final: Path) -> Path:
        """Return an empty folder, on the same disk; what is in those before is removed."""
        if self._own is None:
            sweep(final.parent, _PREFIX)
            self._own = LeasedFolder(final.parent, _PREFIX)
        for before in self._own.path.iterdir():
            shutil.rmtree(before, ignore_errors=True)
        self._models += 1  # never the same path twice: a library of that path may still be open
        place = self._own.path / str(self._models)
        place.mkdir()
        return place

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

    def finish(self) -> Kept:
        """Put the whole file in its place.

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
            self._incoming.close()
            self._incoming = None

    def describe(self, kept: Kept, description: bytes) -> None:
        """Write what a model's description says beside where it is kept, whole or not at all."""
        written = kept.loadable.with_name("description")
        written.write_bytes(description)  # anew for each use, so never flushed to the disk
        os.replace(written, sidecar_of(kept.path))

    def close(self) -> None:
        """Stop taking, and let go of the model that was loaded."""
        self.abandon()
        if self._own is not None:
            self._own.close()
            self._own = None

    def _path_for(self, offer: Offer) -> Path:
        if not self._place.is_dir():
            return self._place
        name, suffix = offer.description.get("name") or "", offer.description.get("suffix") or ""
        if not isinstance(name, str) or not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
            raise Refusal(Code.MODEL, "its name or suffix is not usable")
        if name and not _NAME.fullmatch(name):
            raise Refusal(Code.MODEL, "a model's name is letters, digits and _.+- and no path")
        return self._place / (name or offer.sha256.hex()[:16] + suffix)


def tidy(place: Path) -> None:
    """Remove what servers that were killed have left where models are kept: all but uploads to go on with."""
    folder = place if place.is_dir() else place.parent
    sweep(folder, _PREFIX)
    sweep_files(folder, ".", _PART)


@dataclass
class _Partial:
    """What has come of a file, open and locked."""

    path: Path
    file: BinaryIO
    had: int

    @classmethod
    def of(cls, final: Path, offer: Offer, place: Path) -> _Partial:
        """Open what came before, if nobody else is at it; else a new file in a place of one's own."""
        path = final.with_name(f".{offer.sha256.hex()}{_PART}")
        handle = open_leased(path)
        if handle is None:
            path = place / "upload"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        file = open(handle, "r+b", buffering=0)  # noqa: SIM115 - closed where the model is whole or given up
        try:
            had = os.fstat(handle).st_size // 8 * 8
            had = had if had <= offer.size else 0
            file.truncate(had)
            file.seek(had)
        except BaseException:
            file.close()
            raise
        return cls(path, file, had)


class _Incoming:
    """A model that is on its way; a thread hashes each part while the next is received and written.

    Without a ``partial`` it is there already, under its own name in ``place``.
    """

    def __init__(self, final: Path, place: Path, offer: Offer, partial: _Partial | None, part: int) -> None:
        self._offer = offer
        self._kept = Kept(final, place / final.name, offer.sha256.hex())
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
            self._room = Room(partial.file.fileno(), partial.had, offer.size)
            self._thread = threading.Thread(target=self._hash, args=(partial,), name="nnpipe-store", daemon=True)
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
        partial = self._partial
        if partial is not None:
            self._full.put((content, current))
            self._room.reach(self._at)
            try:
                _write_all(partial.file, content)
            except OSError as error:
                if error.errno in _FULL:
                    partial.path.unlink(missing_ok=True)  # it is what fills the disk
                raise _refusal(error) from None

    def finish(self) -> Kept:
        try:
            self.stop()
            self._place()
        except OSError as error:
            raise _refusal(error) from None
        finally:
            self.close()
        return self._kept

    def _place(self) -> None:
        """Return the file its names, while nobody else can write to it."""
        if self._unreadable is not None:
            raise self._unreadable
        if self._at != self._offer.size:
            raise Refusal(Code.MODEL, f"the file ends at byte {self._at:,} of {self._offer.size:,}")
        partial, kept = self._partial, self._kept
        if partial is None:
            return
        if self._digest.hexdigest() != kept.sha256:
            partial.path.unlink(missing_ok=True)
            raise Refusal(Code.DAMAGED, "send it again; if that does not help, make the model anew")
        _link(partial.path, kept.loadable)
        os.replace(partial.path, kept.path)

    def stop(self) -> None:
        """End the hashing; what is written is as long as what has come."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._full.put(None)
            thread.join()
            self._room.give_back(self._at)

    def close(self) -> None:
        """Let others have the file."""
        if self._partial is not None:
            self._partial.file.close()

    def _hash(self, partial: _Partial) -> None:
        try:
            self._hash_what_was_there(partial)
        except OSError as error:
            self._unreadable = error  # told when the model is whole
        while (item := self._full.get()) is not None:
            content, memory = item
            self._digest.update(content)
            if memory is not None:
                self._free.put(memory)

    def _hash_what_was_there(self, partial: _Partial) -> None:
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


def _use_again(final: Path, offer: Offer, loadable: Path) -> bool:
    """Whether the model is here already; then it has the further name."""
    try:
        if not final.is_file() or final.stat().st_size != offer.size:
            return False
        _link(final, loadable)
    except FileNotFoundError:  # removed since
        return False
    if loadable.stat().st_size == offer.size and sha256_of(loadable) == offer.sha256.hex():
        return True
    loadable.unlink()
    return False


def _link(path: Path, name: Path) -> None:
    """Return a file a further name; where the disk knows no such thing, a copy."""
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


def _refusal(error: OSError) -> Refusal:
    if error.errno in _FULL:
        return Refusal(Code.NO_SPACE, "the disk is full")
    return Refusal(Code.MODEL, f"it cannot be kept: {error.strerror or error}")
