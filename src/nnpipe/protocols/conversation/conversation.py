"""Bytes on one side, messages and rules on the other; no I/O.

Whoever owns a conversation moves its bytes::

    channel.send(host.ask(Kind.PROCESS))
    while (message := host.next_message()) is None:
        host.received(channel.receive_into(host.wanted()))

Both sides keep to :data:`~nnpipe.protocols.conversation.rules.RULES`.  What one's own side
must not say raises :class:`LocalProtocolError` and nothing is made; what the
other side must not say raises :class:`RemoteProtocolError` and the
conversation is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.frame import FrameKind
from nnpipe.protocols.conversation.frame_reader import FrameReader
from nnpipe.protocols.conversation.handshake import NONCE_SIZE, HandshakeAgreement, Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import (
    FIXED_BOUNDS,
    STAMPS_SIZE,
    Bound,
    ConversationState,
    Extension,
    Rule,
    allowed,
)

_PIPELINING, _INFER = int(Extension.PIPELINING), int(Extension.INFER)

Place = Callable[[FrameKind, int], "memoryview | None"]
"""Names the memory for a payload, given the kind of the request and the length in bytes."""


class Message(NamedTuple):
    """What the other side said.

    To a host an answer (``OK``, ``ERROR``) to the request of ``rule``, or a
    ``LOG`` with none; to a target a request.  ``skipped`` marks a pipelined
    request that an earlier failure has made void: it wants ``Code.SKIPPED``.
    """

    kind: FrameKind
    flags: int
    payload: bytes | memoryview
    rule: Rule | None = None
    skipped: bool = False

    @property
    def failure(self) -> ErrorPayload:
        """What an ERROR says."""
        return ErrorPayload.unpack(self.payload)


class Conversation:
    """What both sides have in common: the handshake's agreement, the frame reader, the bounds."""

    def __init__(self, limits: Limits, token: bytes | None, nonce: bytes | None, staging: int) -> None:
        self.limits = limits
        self.state = ConversationState.NEW
        self.place: Place | None = None
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_SIZE) if nonce is None else nonce
        self._said = (b"", b"")  # payloads of HELLO and its answer, which proofs cover
        self.reader = FrameReader(staging)
        self._agree(HandshakeAgreement())
        self.wanted = self.reader.wanted
        self.received = self.reader.received
        self._next_frame = self.reader.next_frame

    @property
    def between_frames(self) -> bool:
        """Whether nothing of a next frame has come."""
        return self.reader.between_frames

    def _agree(self, agreement: HandshakeAgreement) -> None:
        self.agreement = agreement
        self.pipelining = agreement.extensions & _PIPELINING != 0
        """Whether requests may be sent without waiting."""
        self.inferring = agreement.extensions & _INFER != 0
        """Whether an inference may be one request."""
        self._allowed = allowed(agreement.extensions)
        self.reader.use(agreement.check)
        self._check_of = agreement.check.of
        self._most_sent = _bounds(agreement.part, agreement.sendable)
        self._most_taken = _bounds(agreement.part, self.limits.largest)

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        raise NotImplementedError

    def _broken(self, text: str) -> RemoteProtocolError:
        self.state = ConversationState.CLOSED
        return RemoteProtocolError(text)


def _bounds(part: int, largest: int) -> dict[Bound, int]:
    """Return the most bytes of each kind of payload, from what the handshake settles."""
    stamped = min(largest + STAMPS_SIZE, (1 << 32) - 1)  # a header cannot say more
    return {**FIXED_BOUNDS, Bound.PART: part + 8, Bound.TENSORS: largest, Bound.STAMPED: stamped}
