"""The target's side of a conversation, without I/O."""

from __future__ import annotations

from collections.abc import Sequence

from nnpipe.core.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from nnpipe.protocols.conversation import handshake
from nnpipe.protocols.conversation.conversation import Conversation, Message
from nnpipe.protocols.conversation.frame import (
    STAGING,
    Buffer,
    FrameFlag,
    FrameKind,
    pack_header,
    size_of,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import (
    ALLOWED,
    REQUESTS,
    Bound,
    ConversationState,
    Extension,
    Rule,
)

# Global names, since they are used with every frame and looking up members of an enum is much
# slower.
_OK, _ERROR, _LOG = int(FrameKind.OK), int(FrameKind.ERROR), int(FrameKind.LOG)
_MODEL, _PROCESS, _STATS = int(FrameKind.MODEL), int(FrameKind.PROCESS), int(FrameKind.STATS)
_KIND_PROCESS = FrameKind.PROCESS
_NEW, _RUNNING, _CLOSED = ConversationState.NEW, ConversationState.RUNNING, ConversationState.CLOSED
_MODEL_LOADED = frozenset(
    (ConversationState.READY, ConversationState.LOADED, ConversationState.DONE)
)
_TENSORS, _PART = Bound.TENSORS, Bound.PART
_STARTED, _FATAL, _CLOCK = int(FrameFlag.STARTED), int(FrameFlag.FATAL), int(FrameFlag.CLOCK)
_LOGGING = int(Extension.LOG)
_NUMBERS = (1 << 32) - 1
_message = tuple.__new__  # twice as fast as a named tuple's own constructor


class TargetConversation(Conversation):
    """The target's side, which answers requests.

    Each message must be answered (:meth:`answer_handshake`, :meth:`answer`, :meth:`error`)
    before the next call of :meth:`next_message`.

    Parameters
    ----------
    limits
        The limits and abilities of this side.
    token
        The token that a host must know, or None.
    nonce
        Random bytes; random by default.

    Attributes
    ----------
    place
        Returns the memory for input tensors and parts of models.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        token: bytes | None = None,
        nonce: bytes | None = None,
    ) -> None:
        super().__init__(limits or Limits(), token, nonce, STAGING)
        self.number = 0  # of the last request
        self._rule: Rule | None = None  # of the last request whose header has been received
        self._skipped = False
        self._failed = False  # whether a request has failed and none has succeeded since
        self._owed = False  # whether that request is complete and has not been answered

    def next_message(self) -> Message | None:
        """Return the next request, or None while it is incomplete.

        Raises
        ------
        RemoteProtocolError
            If the host broke the rules, or a frame was damaged; :meth:`error` can still report it
            to the host.
        """
        if self._owed:
            raise LocalProtocolError("the request before has not been answered yet")
        try:
            frame = self._next_frame(self._admit)
        except RemoteProtocolError:
            self.state = _CLOSED
            raise
        if frame is None:
            return None
        _, flags, self.number, payload = frame
        rule = self._rule
        assert rule is not None  # _admit has found it
        self._owed = True
        return _message(Message, (rule.kind, flags, payload, rule, self._skipped))

    def answer_handshake(self, message: Message) -> list[Buffer]:
        """Answer a HELLO or an AUTH.

        Raises
        ------
        RemoteProtocolError
            If the two sides support no common version.
        AuthenticationError
            If the host's proof is wrong.
        """
        payload = bytes(message.payload)
        if message.kind is FrameKind.HELLO:
            wanted = self._token is not None
            try:
                reply, agreement = handshake.negotiate(payload, self.limits, wanted, self._nonce)
            except RemoteProtocolError:
                self.state = ConversationState.CLOSED
                raise
            self._said = (payload, reply)
            frame = self.answer((reply,))
            self._apply_agreement(agreement)
            self.state = ConversationState.GREETED if wanted else ConversationState.EMPTY
            return frame
        if not handshake.is_same_proof(
            payload, handshake.compute_proof(self._token or b"", "host", *self._said)
        ):
            self.state = ConversationState.CLOSED
            raise AuthenticationError("a client could not prove that it knows the token")
        return self.answer((handshake.compute_proof(self._token or b"", "target", *self._said),))

    def answer(self, parts: Sequence[Buffer] = (), flags: int = 0) -> list[Buffer]:
        """Return the frame of an OK; the first one to PROCESS has the flag
        ``FrameFlag.STARTED``.
        """
        rule = self._rule
        if rule is None or not self._owed or self._skipped:
            raise LocalProtocolError("there is nothing to say OK to")
        if rule.kind is _KIND_PROCESS and (flags == _STARTED) == (self.state is _RUNNING):
            raise LocalProtocolError(
                "PROCESS is answered with two OKs, the first with the flag STARTED"
            )
        length = check = 0
        if parts:
            length = size_of(parts)
            if length > self._most_sent[rule.answer_bound]:
                raise LocalProtocolError(
                    f"the answer to {rule.kind.name} has more bytes than the host takes"
                )
            check = self._check_of(parts)
        if flags == _STARTED:
            self.state = _RUNNING
        else:
            self._owed = False
            self.state = rule.on_ok or self.state
        return [pack_header(_OK, flags, self.number, length, check), *parts]

    def error(self, failure: ErrorPayload, fatal: bool = False) -> list[Buffer]:
        """Return the frame of an ERROR; after a fatal one, the connection must be closed."""
        if not fatal:
            if self._rule is None or not self._owed:
                raise LocalProtocolError("there is nothing to answer with an error")
            if not self._skipped:
                self.state = self._rule.on_error or self.state
                self._failed = True
        payload = failure.pack()
        self._owed = False
        if fatal:
            self.state = ConversationState.CLOSED
        flags = _FATAL if fatal else 0
        return [
            pack_header(_ERROR, flags, self.number, len(payload), self._check_of((payload,))),
            payload,
        ]

    def log(self, payload: bytes) -> list[Buffer]:
        """Return the frame of a log line; empty if the host did not agree to receive them."""
        if not self.agreement.extensions & _LOGGING or self.state in (
            ConversationState.NEW,
            ConversationState.GREETED,
            ConversationState.CLOSED,
        ):
            return []
        return [pack_header(_LOG, 0, 0, len(payload), self._check_of((payload,))), payload]

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        if kind not in REQUESTS:
            raise self._close_with_error(f"a frame of kind {kind} came, which is not a request")
        if self.state is not _NEW and number != self.number + 1 & _NUMBERS:
            raise self._close_with_error("a request came twice, or one before it is missing")
        rule = self._allowed.get((self.state, kind, flags if kind == _MODEL else 0))
        skipped = False
        if rule is None:
            rule, skipped = self._find_skipped_rule(kind, flags), True
        else:
            self._failed = False
        if flags and kind != _MODEL and (kind != _STATS or flags != _CLOCK):
            raise self._close_with_error(f"{rule.kind.name} with flags {flags:#x} came")
        bound = rule.ask_bound
        if length > self._most_taken[bound]:
            raise self._close_with_error(
                f"{rule.kind.name} announces {length:,} bytes, {self._most_taken[bound]:,} are the "
                f"most"
            )
        self._rule, self._skipped = rule, skipped
        if (bound is _TENSORS or bound is _PART) and self.place is not None and not skipped:
            return self.place(rule.kind, length)
        return None

    def _find_skipped_rule(self, kind: int, flags: int) -> Rule:
        """Return the rule of a pipelined request that is invalid because of an earlier failure."""
        if self.pipelining and self._failed:
            if self.state in _MODEL_LOADED and kind in (_PROCESS, int(FrameKind.OUTPUT)):
                return ALLOWED[ConversationState.DONE, kind, 0]
            if self.state is ConversationState.EMPTY and kind == _MODEL and flags == FrameFlag.PART:
                return ALLOWED[ConversationState.RECEIVING, kind, flags]
        raise self._close_with_error(
            f"{FrameKind(kind).name} with flags {flags:#x} came while the state was "
            f"{self.state.value!r}"
        )
