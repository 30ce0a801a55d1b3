"""The base of both sides of a conversation: converts bytes to messages and checks the rules,
without I/O.

The owner of a conversation transfers its bytes::

    channel.send(host.ask(Kind.PROCESS))
    while (message := host.next_message()) is None:
        host.received(channel.receive_into(host.wanted()))

Both sides follow :data:`~nnpipe.protocols.conversation.rules.RULES`.  A forbidden
message of one's own side raises :class:`LocalProtocolError`, and nothing is sent.
A forbidden message of the other side raises :class:`RemoteProtocolError`, and the
conversation is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.frame import FrameKind, FrameReader
from nnpipe.protocols.conversation.handshake import NONCE_SIZE, HandshakeAgreement, Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import (
    FIXED_BOUNDS,
    STAMPS_SIZE,
    Bound,
    ConversationState,
    Extension,
    Rule,
    select_rules,
)

_PIPELINING, _INFER = int(Extension.PIPELINING), int(Extension.INFER)

Place = Callable[[FrameKind, int], "memoryview | None"]
"""Returns the memory for a payload, given the kind of the request and the length in bytes."""


class Message(NamedTuple):
    """A message of the other side.

    For a host, it is an answer (``OK``, ``ERROR``) to the request of ``rule``, or a
    ``LOG`` without a rule.  For a target, it is a request.  ``skipped`` marks a
    pipelined request that is invalid because of an earlier failure; the target
    answers it with ``ErrorCode.SKIPPED``.
    """

    kind: FrameKind
    flags: int
    payload: bytes | memoryview
    rule: Rule | None = None
    skipped: bool = False

    @property
    def failure(self) -> ErrorPayload:
        """The content of an ERROR."""
        return ErrorPayload.unpack(self.payload)


class Conversation:
    """The base of both sides: the agreement of the handshake, the frame reader, the limits."""

    def __init__(
        self, limits: Limits, token: bytes | None, nonce: bytes | None, staging: int
    ) -> None:
        self.limits = limits
        self.state = ConversationState.NEW
        self.place: Place | None = None
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_SIZE) if nonce is None else nonce
        self._said = (b"", b"")  # payloads of HELLO and its answer, which the proofs include
        self.reader = FrameReader(staging)
        self._apply_agreement(HandshakeAgreement())
        self.wanted = self.reader.get_buffer
        self.received = self.reader.report_received
        self._next_frame = self.reader.next_frame

    @property
    def between_frames(self) -> bool:
        """Whether no part of a next frame has been received."""
        return self.reader.between_frames

    def _apply_agreement(self, agreement: HandshakeAgreement) -> None:
        self.agreement = agreement
        self.pipelining = agreement.extensions & _PIPELINING != 0
        """Whether requests may be sent without waiting for answers."""
        self.inferring = agreement.extensions & _INFER != 0
        """Whether an inference may be a single request."""
        self._allowed = select_rules(agreement.extensions)
        self.reader.set_check(agreement.check)
        self._check_of = agreement.check.of
        self._most_sent = _compute_bounds(agreement.part, agreement.sendable)
        self._most_taken = _compute_bounds(agreement.part, self.limits.largest)

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        raise NotImplementedError

    def _close_with_error(self, text: str) -> RemoteProtocolError:
        self.state = ConversationState.CLOSED
        return RemoteProtocolError(text)


def _compute_bounds(part: int, largest: int) -> dict[Bound, int]:
    """Return the size limit of each kind of payload in bytes, from the agreement of the
    handshake.
    """
    stamped = min(largest + STAMPS_SIZE, (1 << 32) - 1)  # the limit of the header's field
    return {**FIXED_BOUNDS, Bound.PART: part + 8, Bound.TENSORS: largest, Bound.STAMPED: stamped}
