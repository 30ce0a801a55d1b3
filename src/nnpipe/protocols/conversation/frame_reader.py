"""The reader of frames in received bytes, without I/O, and without copying payloads that have their own memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.checksums import CRC32, Check
from nnpipe.protocols.conversation.frame import CHECKED_SIZE, HEADER_SIZE, MAGIC, VERSION, read_header

STAGING = 1 << 13
_CRC32 = zlib.crc32

Admit = Callable[[int, int, int, int], "memoryview | None"]
"""Checks a header (kind, flags, number, length): raises an error, or returns the memory for the payload."""


Frame = tuple[int, int, int, "bytes | memoryview"]
"""Kind, flags, number, and payload: the memory that was returned for it, or bytes."""


class FrameReader:
    """Receives bytes in pieces of any length and returns frames.

    The owner reads into the memory of :meth:`wanted`, reports the number of bytes
    with :meth:`received`, and calls :meth:`next_frame` until it returns None.
    Headers and small payloads are read into a staging buffer of fixed size.  After
    a header has been accepted, a payload with its own memory is read directly
    into it.

    Parameters
    ----------
    staging
        The size of the staging buffer in bytes.

    Attributes
    ----------
    begin, end
        The range of unread bytes in the staging buffer.  If they are equal, no part of a next frame has been
        received, or its payload is read into its own memory.

    Raises
    ------
    RemoteProtocolError
        Raised by :meth:`next_frame`; afterwards the reader must not be used.
    """

    def __init__(self, staging: int = STAGING) -> None:
        self.use(CRC32)
        self._staging = memoryview(bytearray(staging))
        self.begin = self.end = 0  # of the bytes in staging; read by owners, with every frame
        self._header: tuple[int, int, int, int, int] | None = None  # of a frame whose payload is incomplete
        self._payload: memoryview | None = None  # where the present payload goes, if not to staging
        self._filled = 0

    def use(self, check: Check) -> None:
        """Use this checksum for payloads from now on."""
        self._check_of = check.of

    @property
    def between_frames(self) -> bool:
        """Whether no part of a next frame has been received."""
        return self._header is None and self.begin == self.end

    def wanted(self) -> memoryview:
        """Return the memory for the next bytes; it is never empty while a frame is incomplete."""
        if self._payload is not None:
            return self._payload[self._filled :]
        if self.begin:
            left = self.end - self.begin
            if left:
                self._staging[:left] = self._staging[self.begin : self.end]
            self.begin, self.end = 0, left
        return self._staging[self.end :]

    def received(self, count: int) -> None:
        """Report that ``count`` bytes have been written to the memory of :meth:`wanted`."""
        if self._payload is not None:
            self._filled += count
        else:
            self.end += count

    def next_frame(self, admit: Admit) -> Frame | None:
        """Return the next complete frame after verifying its checksums, or None.

        Parameters
        ----------
        admit
            Called with each header before its payload is read.  The reader does
            not store it: the reference cycle would delay freeing the many
            conversations of a server.
        """
        payload: bytes | memoryview
        place = self._payload
        if self._header is None:
            begin = self.begin
            if self.end - begin < HEADER_SIZE:
                return None
            staging = self._staging
            magic, version, kind, flags, number, length, check, own = read_header(staging, begin)
            if _CRC32(staging[begin : begin + CHECKED_SIZE]) != own or magic != MAGIC:
                raise RemoteProtocolError(
                    "something came that is not a frame of nnpipe, or a frame's header was damaged"
                )
            if version != VERSION:
                raise RemoteProtocolError(f"a frame of version {version} came, this side reads version {VERSION}")
            place = admit(kind, flags, number, length)
            begin += HEADER_SIZE
            if not length:
                self.begin = begin
                if check:
                    raise RemoteProtocolError("a frame without payload came with a check of one")
                return kind, flags, number, b""
            end = begin + length
            if end <= self.end:  # it has been received completely
                self.begin = end
                payload = _copied(staging[begin:end], place)
                if self._check_of((payload,)) != check:
                    raise _damaged(length)
                return kind, flags, number, payload
            self.begin = begin
            self._header = (kind, flags, number, length, check)
            if place is not None or length > len(staging):
                place = self._begin_payload(place, length)
        else:
            kind, flags, number, length, check = self._header
        if place is not None:
            if self._filled < length:
                return None
            payload, self._payload = place, None
        else:
            begin = self.begin
            if self.end - begin < length:
                return None
            payload = bytes(self._staging[begin : begin + length])
            self.begin = begin + length
        self._header = None
        if self._check_of((payload,)) != check:
            raise _damaged(length)
        return kind, flags, number, payload

    def _begin_payload(self, place: memoryview | None, length: int) -> memoryview:
        """Copy the received part of a payload to its memory."""
        if place is None:
            place = np.empty(
                length, np.uint8
            ).data  # within the limit of the kind; pages are used only when bytes arrive
        elif len(place) != length:
            raise ValueError(f"{length} bytes of payload were given a place of {len(place)}")
        self._payload = place
        begin = self.begin
        here = self._filled = self.end - begin
        place[:here] = self._staging[begin : begin + here]
        self.begin = begin + here
        return place


def _copied(payload: memoryview, place: memoryview | None) -> bytes | memoryview:
    if place is None:
        return bytes(payload)
    place[:] = payload
    return place


def _damaged(length: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the payload of a frame of {length:,} bytes was damaged on its way")
