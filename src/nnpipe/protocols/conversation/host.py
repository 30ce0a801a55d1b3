"""The host's side of a conversation, without I/O."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence

from nnpipe.core.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from nnpipe.protocols.conversation import handshake
from nnpipe.protocols.conversation.conversation import Conversation, Message
from nnpipe.protocols.conversation.frame import (
    Buffer,
    ErrorCode,
    FrameFlag,
    FrameKind,
    pack_header,
    size_of,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.rules import Bound, ConversationState, Extension, Rule

# Global names, since they are used with every frame and looking up members of an enum is much
# slower.
_OK, _ERROR, _LOG = int(FrameKind.OK), int(FrameKind.ERROR), int(FrameKind.LOG)
_MODEL = int(FrameKind.MODEL)
_KIND_OK, _KIND_LOG, _KIND_PROCESS = FrameKind.OK, FrameKind.LOG, FrameKind.PROCESS
_RUNNING, _CLOSED = ConversationState.RUNNING, ConversationState.CLOSED
_HANDSHAKE = frozenset((ConversationState.NEW, ConversationState.GREETED))
_NOTHING, _OUTPUTS = Bound.NOTHING, frozenset((Bound.TENSORS, Bound.STAMPED))
_STARTED, _FATAL = int(FrameFlag.STARTED), int(FrameFlag.FATAL)
_LOGGING = int(Extension.LOG)
_STAGING = 1 << 14  # bytes; holds several answers to pipelined requests
_NUMBERS = (1 << 32) - 1
_message = tuple.__new__  # twice as fast as a named tuple's own constructor


class HostConversation(Conversation):
    """The host's side, which sends requests.

    Parameters
    ----------
    limits
        The limits and abilities of this side.
    token
        The shared token, or None.
    nonce, number
        Random bytes, and the number of the first request; both random by default.

    Attributes
    ----------
    place
        Returns the memory for output tensors; by default, new memory is used.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        token: bytes | None = None,
        nonce: bytes | None = None,
        number: int | None = None,
    ) -> None:
        super().__init__(limits or Limits(), token, nonce, _STAGING)
        self._number = secrets.randbits(32) if number is None else number
        # requests that are not answered yet: number and rule
        self._open: deque[tuple[int, Rule]] = deque()
        # the state once all open requests have been answered with OK
        self._ahead = ConversationState.NEW
        self._started = False

    @property
    def waiting(self) -> int:
        """The number of requests that have not been answered yet."""
        return len(self._open)

    def build_hello(self) -> list[Buffer]:
        """Return the frame that opens the conversation."""
        payload = handshake.pack_hello(self.limits, self._nonce)
        self._said = (payload, b"")
        return self.ask(FrameKind.HELLO, (payload,))

    def build_proof(self) -> list[Buffer]:
        """Return the frame that proves to the target that this side knows the token."""
        return self.ask(
            FrameKind.AUTH, (handshake.compute_proof(self._token or b"", "host", *self._said),)
        )

    def ask(self, kind: FrameKind, parts: Sequence[Buffer] = (), flags: int = 0) -> list[Buffer]:
        """Return the frame of a request.

        Raises
        ------
        LocalProtocolError
            If the request is not allowed now, or its payload is too long.
        """
        rule = self._allowed.get((self._ahead, kind, flags if kind == _MODEL else 0))
        if rule is None:
            raise LocalProtocolError(
                f"{kind.name} must not be said while the state is {self._ahead.value!r}"
            )
        opened = self._open
        if opened and not (self.pipelining and rule.pipelined and opened[-1][1].pipelined):
            raise LocalProtocolError(
                f"{kind.name} must wait for the answer to {opened[-1][1].kind.name}"
            )
        length = check = 0
        if parts:
            length = size_of(parts)
            most = self._most_sent[rule.ask_bound]
            if length > most:
                raise LocalProtocolError(
                    f"{kind.name} with {length:,} bytes is more than the {most:,} that the target "
                    f"takes"
                )
            check = self._check_of(parts)
        number = self._number
        self._number = number + 1 & _NUMBERS
        opened.append((number, rule))
        self._ahead = rule.on_ok or self._ahead
        return [pack_header(kind, flags, number, length, check), *parts]

    def next_message(self) -> Message | None:
        """Return the next answer or log line, or None while it is incomplete.

        Raises
        ------
        RemoteProtocolError
            If the target broke the rules, or a frame was damaged.
        AuthenticationError
            If the target cannot prove that it knows the token.
        """
        if self.state is _CLOSED:
            raise LocalProtocolError("the conversation is over")
        try:
            frame = self._next_frame(self._admit)
        except RemoteProtocolError:
            self.state = _CLOSED
            raise
        if frame is None:
            return None
        kind, flags, _, payload = frame
        if kind != _OK:
            return (
                self._handle_error(flags, payload)
                if kind == _ERROR
                else Message(_KIND_LOG, flags, payload)
            )
        if flags == _STARTED:
            self._started = True
            self.state = _RUNNING
            return Message(_KIND_OK, flags, payload, self._open[0][1])
        self._started = False
        rule = self._open.popleft()[1]
        state = self.state
        self.state = rule.on_ok or state
        if state in _HANDSHAKE:
            if rule.kind is FrameKind.HELLO:
                self._handle_welcome(bytes(payload))
            elif rule.kind is FrameKind.AUTH:
                self._handle_proof(bytes(payload))
        return _message(Message, (_KIND_OK, flags, payload, rule, False))

    def _handle_error(self, flags: int, payload: bytes | memoryview) -> Message:
        rule = self._open[0][1] if self._open else None
        message = Message(FrameKind.ERROR, flags, payload, rule)
        try:
            code = message.failure.code
        except RemoteProtocolError:
            self.state = ConversationState.CLOSED
            raise
        if flags & _FATAL or rule is None:
            self.state = ConversationState.CLOSED
            self._open.clear()
            return message
        self._started = False
        self._open.popleft()
        if code != ErrorCode.SKIPPED:
            self.state = rule.on_error or self.state
        elif self.state is ConversationState.RUNNING:
            raise self._close_with_error("the target passed over a request that it had begun")
        # The target may now skip requests that were sent ahead.
        self._ahead = self.state
        for _, later in self._open:
            if (self._ahead, later.kind, later.step) in self._allowed:
                self._ahead = later.on_ok or self._ahead
        return message

    def _handle_welcome(self, payload: bytes) -> None:
        try:
            self._apply_agreement(handshake.read_agreement(payload, self.limits))
        except RemoteProtocolError:
            self.state = ConversationState.CLOSED
            raise
        self._said = (self._said[0], payload)
        if self.agreement.proof_wanted:
            self.state = self._ahead = ConversationState.GREETED
            if self._token is None:
                self.state = ConversationState.CLOSED
                raise AuthenticationError(
                    "the target asks for a shared token; name the file that holds it: --token-file"
                )
        elif self._token is not None:
            self.state = ConversationState.CLOSED
            raise AuthenticationError(
                "a token was given, but the target asks for none, so it may not be the one that is "
                "meant; start the server with --token-file, or leave the token out here"
            )

    def _handle_proof(self, payload: bytes) -> None:
        if not handshake.is_same_proof(
            payload, handshake.compute_proof(self._token or b"", "target", *self._said)
        ):
            self.state = ConversationState.CLOSED
            raise AuthenticationError("the target could not prove that it knows the token")

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        rule = None
        if kind == _OK or (kind == _ERROR and not flags):
            opened = self._open
            if not opened or opened[0][0] != number:
                raise self._close_with_error(
                    "an answer came to something that was not asked, or in the wrong order"
                )
            rule = opened[0][1]
            bound = rule.answer_bound
            if kind == _ERROR:
                bound = Bound.TEXT
            elif rule.kind is _KIND_PROCESS and not self._started:
                bound = _NOTHING
                if flags != _STARTED:
                    raise self._close_with_error("PROCESS was answered without a first OK")
            elif flags:
                raise self._close_with_error(
                    f"an OK with flags {flags:#x} came in answer to {rule.kind.name}"
                )
        elif kind == _LOG and self.agreement.extensions & _LOGGING and not flags and not number:
            bound = Bound.TEXT
        elif kind == _ERROR and flags == _FATAL:
            # may come at any time, for example before the target has read a request
            bound = Bound.TEXT
        else:
            raise self._close_with_error(
                f"a frame of kind {kind} with flags {flags:#x} came, which was not agreed on"
            )
        if length > self._most_taken[bound]:
            raise self._close_with_error(
                f"a payload of {length:,} bytes was announced where {self._most_taken[bound]:,} "
                f"are the most"
            )
        if bound in _OUTPUTS and rule is not None and self.place is not None:
            return self.place(rule.kind, length)
        return None
