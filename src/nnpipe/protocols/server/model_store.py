"""The store in which a server keeps the models that clients send.

A file with the final name is complete, unless a power failure damaged it.  Its
SHA-256, which is verified before every reuse, shows this.

Several servers may keep their models in one folder, and another server may
replace the file of a name at any time.  So a model is loaded by a second name in a
private folder of the worker, which belongs to the same file that was hashed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from nnpipe.core.artifact import sidecar_of
from nnpipe.core.leases import LeasedFolder, sweep, sweep_files
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.conversation.payloads import ModelOffer
from nnpipe.protocols.server.incoming_model import (
    PART,
    IncomingModel,
    PartialUpload,
    Refusal,
    StoredModel,
    refusal_of,
    use_again,
)

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
            raise Refusal(ErrorCode.NO_SPACE, f"the model has {offer.size:,} bytes, this server takes {self._most:,}")
        final = self._path_for(offer)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            place = self._place_of_its_own(final)
            if use_again(final, offer, place / final.name):
                self._incoming = IncomingModel(final, place, offer, None, self._part)
                return offer.size
            partial = PartialUpload.of(final, offer, place)
            try:
                if shutil.disk_usage(final.parent).free < offer.size - partial.had + _RESERVE:
                    wanted = offer.size - partial.had
                    raise Refusal(ErrorCode.NO_SPACE, f"{wanted:,} bytes are wanted, the disk has no room for them")
                self._incoming = IncomingModel(final, place, offer, partial, self._part)
            except BaseException:
                if not partial.had:
                    partial.path.unlink(missing_ok=True)
                partial.file.close()
                raise
        except OSError as error:
            raise refusal_of(error) from None
        return partial.had

    def _place_of_its_own(self, final: Path) -> Path:
        """Return an empty folder on the same disk, and remove the content of earlier ones."""
        if self._own is None:
            sweep(final.parent, _PREFIX)
            self._own = LeasedFolder(final.parent, _PREFIX)
        for before in self._own.path.iterdir():
            shutil.rmtree(before, ignore_errors=True)
        self._models += 1  # a path is never reused, since a library with that path may still be open
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
        written.write_bytes(description)  # written again for each use, so it need not be flushed to the disk
        os.replace(written, sidecar_of(kept.path))

    def close(self) -> None:
        """Stop an upload, and release the loaded model."""
        self.abandon()
        if self._own is not None:
            self._own.close()
            self._own = None

    def _path_for(self, offer: ModelOffer) -> Path:
        if not self._place.is_dir():
            return self._place
        name, suffix = offer.description.get("name") or "", offer.description.get("suffix") or ""
        if not isinstance(name, str) or not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
            raise Refusal(ErrorCode.MODEL, "its name or suffix is not usable")
        if name and not _NAME.fullmatch(name):
            raise Refusal(ErrorCode.MODEL, "a model's name is letters, digits and _.+- and no path")
        return self._place / (name or offer.sha256.hex()[:16] + suffix)


def tidy(place: Path) -> None:
    """Remove the files of killed servers from the folder of models, except for uploads that can be resumed."""
    folder = place if place.is_dir() else place.parent
    sweep(folder, _PREFIX)
    sweep_files(folder, ".", PART)
