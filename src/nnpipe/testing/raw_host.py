"""A host that says what it is told to, right or wrong, and reads answers as they come."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import TransportError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.protocols.client.connection import describe
from nnpipe.protocols.conversation import handshake
from nnpipe.protocols.conversation.frame import (
    CRC32,
    HEADER_SIZE,
    MAGIC,
    VERSION,
    ErrorCode,
    FrameFlag,
    FrameKind,
    pack_header,
    read_header,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import (
    ModelOffer,
    TensorLayout,
    pack_count,
    unpack_count,
)
from nnpipe.protocols.conversation.rules import ConversationState

PATIENCE = 20.0
"""Seconds for which a server may be busy with the client before."""
BEGIN, PART, END = FrameFlag.BEGIN, FrameFlag.PART, FrameFlag.END


class RawAnswer(NamedTuple):
    """A frame of the target."""

    kind: FrameKind
    flags: int
    number: int
    payload: bytes

    @property
    def code(self) -> int:
        """The code of an ERROR; 0 for an OK."""
        return int.from_bytes(self.payload[:2], "little") if self.kind is FrameKind.ERROR else 0

    @property
    def fatal(self) -> bool:
        """Whether the target has ended the conversation."""
        return self.kind is FrameKind.ERROR and bool(self.flags & FrameFlag.FATAL)


class RawHost:
    """A connection to a target, without any rules; payloads have CRC-32.

    Parameters
    ----------
    protocol
        The protocol that connects to the target.
    token
        The token to prove, or None.
    """

    def __init__(self, protocol: RuntimeProtocol, token: bytes | None = None) -> None:
        self.channel = protocol.connect()
        self.number = 0x7FFFFFFE  # numbers pass the middle of their range
        self._token = token

    def ask(self, kind: int, payload: bytes = b"", flags: int = 0) -> RawAnswer:
        """Send a request, and return its answer."""
        self.send_request(kind, payload, flags)
        return self.answer()

    def send_request(
        self, kind: int, payload: bytes = b"", flags: int = 0, length: int | None = None
    ) -> None:
        """Send a request; with ``length``, its header announces so many bytes."""
        self.send(self.frame(kind, payload, flags, length))

    def frame(
        self, kind: int, payload: bytes = b"", flags: int = 0, length: int | None = None
    ) -> bytes:
        """Return the bytes of the next request, without sending them."""
        self.number = self.number + 1 & 0xFFFFFFFF
        size = len(payload) if length is None else length
        return pack_header(kind, flags, self.number, size, CRC32.of([payload])) + payload

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.channel.send([data])

    def answer(self) -> RawAnswer:
        """Return the next frame that is no LOG, after checking that it is well formed.

        Raises
        ------
        TransportError
            If the connection has ended.
        """
        while True:
            magic, version, kind, flags, number, length, check, _ = read_header(
                self._receive(HEADER_SIZE)
            )
            assert (magic, version) == (MAGIC, VERSION)
            payload = self._receive(length)
            assert check == (CRC32.of([payload]) if payload else 0)
            if kind != FrameKind.LOG:
                return RawAnswer(FrameKind(kind), flags, number, payload)

    def has_ended(self) -> bool:
        """Return whether nothing more comes because the target has closed the connection."""
        try:
            return not self.channel.receive_into(memoryview(bytearray(1)))
        except TransportError:
            return True

    def _receive(self, count: int) -> bytes:
        memory = memoryview(bytearray(count))
        at = 0
        while at < count:
            got = self.channel.receive_into(memory[at:])
            if not got:
                raise TransportError("the target has closed the connection")
            at += got
        return bytes(memory)

    def perform_handshake(
        self, limits: Limits | None = None, token: bytes | None = None
    ) -> RawAnswer:
        """Send HELLO, and AUTH if it is asked for; return the last answer."""
        said = handshake.pack_hello(limits or Limits(extensions=0), bytes(range(16)))
        found = self.ask(FrameKind.HELLO, said)
        if found.kind is FrameKind.OK and found.payload[2]:
            proof = handshake.compute_proof(
                token or self._token or b"", "host", said, found.payload
            )
            answer = self.ask(FrameKind.AUTH, proof)
            if answer.kind is FrameKind.OK:
                assert answer.payload == handshake.compute_proof(
                    self._token or b"", "target", said, found.payload
                )
            return answer
        return found

    def load(self, model: Artifact) -> RawAnswer:
        """Send a model, or what the target has not of it; return the answer to its end."""
        content = model.path.read_bytes()
        offer = ModelOffer(
            len(content), hashlib.sha256(content).digest(), describe(model, "")
        ).pack()
        had = unpack_count(self.ask(FrameKind.MODEL, offer, BEGIN).payload)
        for at in range(had, len(content), 1 << 16):
            answer = self.ask(FrameKind.MODEL, pack_count(at) + content[at : at + (1 << 16)], PART)
            assert answer.kind is FrameKind.OK
        return self.ask(FrameKind.MODEL, b"", END)

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()

    def __enter__(self) -> RawHost:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def create_model_batch(model: Artifact, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs of a model with fixed shapes."""
    random = np.random.default_rng(seed)
    found = {}
    for spec in model.io.inputs:
        shape = [length or 1 for length in spec.shape]
        if np.dtype(spec.dtype).kind == "f":
            found[spec.name] = random.standard_normal(shape).astype(spec.dtype)
        else:
            found[spec.name] = random.integers(0, 127, shape).astype(spec.dtype)
    return found


def create_model_payload(model: Artifact, seed: int) -> bytes:
    """Return such inputs as a payload."""
    return b"".join(map(bytes, TensorLayout(model.io.inputs).pack(create_model_batch(model, seed))))


@contextmanager
def connect_host(
    serving: RuntimeProtocol, extensions: int = 0, largest: int = 1 << 20
) -> Iterator[tuple[RawHost, bytes]]:
    """Yield a host that was let in, and the payload of the target's answer."""
    until = time.monotonic() + PATIENCE
    while True:
        with RawHost(serving) as host:
            answer = host.perform_handshake(Limits(extensions=int(extensions), largest=largest))
            if answer.code != ErrorCode.BUSY or time.monotonic() > until:
                assert answer.kind is FrameKind.OK, answer
                yield host, answer.payload
                return
        time.sleep(0.02)


@contextmanager
def connect_ready_host(
    serving: RuntimeProtocol, model: Artifact, extensions: int = 0, largest: int = 1 << 20
) -> Iterator[RawHost]:
    """Yield a host whose model is loaded."""
    with connect_host(serving, extensions, largest) as (host, _):
        assert host.load(model).kind is FrameKind.OK
        yield host


@contextmanager
def connect_host_in_state(
    serving: RuntimeProtocol, model: Artifact, state: ConversationState
) -> Iterator[RawHost]:
    """Yield a host whose conversation is in a state."""
    if state is ConversationState.NEW:
        with RawHost(serving) as host:
            yield host
        return
    with connect_host(serving) as (host, _):
        if state is not ConversationState.EMPTY:
            assert host.load(model).kind is FrameKind.OK
        if state in (ConversationState.LOADED, ConversationState.DONE):
            assert host.ask(FrameKind.DATA, create_model_payload(model, 0)).kind is FrameKind.OK
        if state is ConversationState.DONE:
            assert host.ask(FrameKind.PROCESS).flags == FrameFlag.STARTED
            assert host.answer().kind is FrameKind.OK
        yield host


def is_refused(host: RawHost, kind: int, payload: bytes = b"", flags: int = 0) -> bool:
    """Return whether a request ends the conversation with an ERROR of the rules."""
    answer = host.ask(kind, payload, flags)
    return (answer.fatal, answer.code) == (True, ErrorCode.PROTOCOL) and host.has_ended()
