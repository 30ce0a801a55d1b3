"""Bytes on one side, messages and rules on the other; no I/O.

Whoever owns a conversation moves its bytes::

    channel.send(host.ask(Kind.PROCESS))
    while (message := host.next_message()) is None:
        host.received(channel.receive_into(host.wanted()))

Both sides keep to :data:`~nnpipe.protocols._rules.RULES`.  What one's own side
must not say raises :class:`LocalProtocolError` and nothing is made; what the
other side must not say raises :class:`RemoteProtocolError` and the
conversation is over.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nnpipe.core.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from nnpipe.protocols import _handshake
from nnpipe.protocols._check import Buffer
from nnpipe.protocols._frame import Code, Flag, Kind, header, size_of
from nnpipe.protocols._handshake import NONCE_SIZE, Agreement, Limits
from nnpipe.protocols._payloads import Failure
from nnpipe.protocols._reader import FrameReader
from nnpipe.protocols._rules import ALLOWED, FIXED_BOUNDS, REQUESTS, Bound, Extension, Rule, State

Place = Callable[[Kind, int], "memoryview | None"]
"""Names the memory for a payload, given the kind of the request and the length in bytes."""

# Looked up with every frame, each as a global name: members of an enum are found much more slowly.
_OK, _ERROR, _LOG = int(Kind.OK), int(Kind.ERROR), int(Kind.LOG)
_MODEL, _DATA, _PROCESS, _OUTPUT, _STATS = (
    int(kind) for kind in (Kind.MODEL, Kind.DATA, Kind.PROCESS, Kind.OUTPUT, Kind.STATS)
)
_KIND_OK, _KIND_LOG, _KIND_DATA, _KIND_PROCESS = Kind.OK, Kind.LOG, Kind.DATA, Kind.PROCESS
_NEW, _RUNNING, _CLOSED, _DONE = State.NEW, State.RUNNING, State.CLOSED, State.DONE
_HANDSHAKE = frozenset((State.NEW, State.GREETED))
_NOTHING, _TENSORS, _PART = Bound.NOTHING, Bound.TENSORS, Bound.PART
_STARTED, _FATAL, _QUIET, _CLOCK = int(Flag.STARTED), int(Flag.FATAL), int(Flag.QUIET), int(Flag.CLOCK)
_PIPELINING, _LOGGING = int(Extension.PIPELINING), int(Extension.LOG)
_NUMBERS = (1 << 32) - 1
_MODEL_LOADED = frozenset((State.READY, State.LOADED, State.DONE))
_DATA_RULE, _PROCESS_RULE, _OUTPUT_RULE = (ALLOWED[State.DONE, kind, 0] for kind in (_DATA, _PROCESS, _OUTPUT))


class Message(NamedTuple):
    """What the other side said.

    To a host an answer (``OK``, ``ERROR``) to the request of ``rule``, or a
    ``LOG`` with none; to a target a request.  ``skipped`` marks a pipelined
    request that an earlier failure has made void: it wants ``Code.SKIPPED``.
    """

    kind: Kind
    flags: int
    payload: bytes | memoryview
    rule: Rule | None = None
    skipped: bool = False

    @property
    def failure(self) -> Failure:
        """What an ERROR says."""
        return Failure.unpack(self.payload)


class _Conversation:
    def __init__(self, limits: Limits, token: bytes | None, place: Place | None, nonce: bytes | None) -> None:
        self.limits = limits
        self.state = State.NEW
        self.place = place
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_SIZE) if nonce is None else nonce
        self._said = (b"", b"")  # payloads of HELLO and its answer, which proofs cover
        self._reader = FrameReader()
        self._agree(Agreement())
        self.wanted = self._reader.wanted
        self.received = self._reader.received
        self._next_frame = self._reader.next_frame

    @property
    def between_frames(self) -> bool:
        """Whether nothing of a next frame has come."""
        return self._reader.between_frames

    def _agree(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.pipelining = agreement.extensions & _PIPELINING != 0
        """Whether requests may be sent without waiting."""
        self._reader.use(agreement.check)
        self._check_of = agreement.check.of
        part = agreement.part + 8
        self._most_sent = {**FIXED_BOUNDS, Bound.PART: part, Bound.TENSORS: agreement.sendable}
        self._most_taken = {**FIXED_BOUNDS, Bound.PART: part, Bound.TENSORS: self.limits.largest}

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        raise NotImplementedError

    def _broken(self, text: str) -> RemoteProtocolError:
        self.state = State.CLOSED
        return RemoteProtocolError(text)


class HostConversation(_Conversation):
    """The asking side.

    Parameters
    ----------
    limits
        What this side offers and takes.
    token
        What both sides must know, or None.
    place
        Names memory for output tensors; without it they come as new memory.
    nonce, number
        Random bytes, and the number of the first request; chosen at random unless given.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        token: bytes | None = None,
        place: Place | None = None,
        nonce: bytes | None = None,
        number: int | None = None,
    ) -> None:
        super().__init__(limits or Limits(), token, place, nonce)
        self._number = secrets.randbits(32) if number is None else number
        self._open: deque[tuple[int, Rule, bool]] = deque()  # number, rule, and whether it was asked quietly
        self._ahead = State.NEW  # the state once all open requests have been answered with OK
        self._started = False

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet."""
        return len(self._open)

    def hello(self) -> list[Buffer]:
        """Open the conversation."""
        payload = _handshake.hello(self.limits, self._nonce)
        self._said = (payload, b"")
        return self.ask(Kind.HELLO, (payload,))

    def prove(self) -> list[Buffer]:
        """Prove that this side knows the token, which the target asked for."""
        return self.ask(Kind.AUTH, (_handshake.proof(self._token or b"", "host", *self._said),))

    def ask(self, kind: Kind, parts: Sequence[Buffer] = (), flags: int = 0) -> list[Buffer]:
        """Make the frame of a request.

        With ``Flag.QUIET`` a pipelined DATA or PROCESS gets no OK, or only the
        second; that it was granted shows when a later request is answered.

        Raises
        ------
        LocalProtocolError
            If the request is not allowed now, or its payload is too long.
        """
        rule = ALLOWED.get((self._ahead, kind, flags if kind == _MODEL else 0))
        if rule is None:
            raise LocalProtocolError(f"{kind.name} must not be said while the state is {self._ahead.value!r}")
        if self._open and not (rule.pipelined and self._open[-1][1].pipelined and self.pipelining):
            raise LocalProtocolError(f"{kind.name} must wait for the answer to {self._open[-1][1].kind.name}")
        length = check = 0
        if parts:
            length = size_of(parts)
            most = self._most_sent[rule.ask_bound]
            if length > most:
                raise LocalProtocolError(
                    f"{kind.name} with {length:,} bytes is more than the {most:,} that the target takes"
                )
            check = self._check_of(parts)
        number = self._number
        self._number = number + 1 & _NUMBERS
        self._open.append((number, rule, flags == _QUIET))
        self._ahead = rule.on_ok or self._ahead
        return [header(kind, flags, number, length, check), *parts]

    def ask_inference(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Make the frames of DATA, PROCESS and OUTPUT, the first two quiet; quicker than asking for one by one.

        Raises
        ------
        LocalProtocolError
            If one of them is not allowed now, or the inputs are too long.
        """
        opened = self._open
        length = size_of(inputs)
        if (
            not self.pipelining
            or self._ahead not in _MODEL_LOADED
            or (opened and not opened[-1][1].pipelined)
            or length > self._most_sent[_TENSORS]
        ):
            ask = self.ask
            return [*ask(Kind.DATA, inputs, _QUIET), *ask(Kind.PROCESS, (), _QUIET), *ask(Kind.OUTPUT)]
        number = self._number
        second, third = number + 1 & _NUMBERS, number + 2 & _NUMBERS
        self._number = number + 3 & _NUMBERS
        opened.append((number, _DATA_RULE, True))
        opened.append((second, _PROCESS_RULE, True))
        opened.append((third, _OUTPUT_RULE, False))
        self._ahead = _DONE
        data = header(_DATA, _QUIET, number, length, self._check_of(inputs) if length else 0)
        return [data, *inputs, header(_PROCESS, _QUIET, second, 0, 0) + header(_OUTPUT, 0, third, 0, 0)]

    def next_message(self) -> Message | None:
        """Give the next answer or log line, or None while it is incomplete.

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
            return self._take_error(flags, payload) if kind == _ERROR else Message(_KIND_LOG, flags, payload)
        if flags == _STARTED:
            self._started = True
            self.state = _RUNNING
            return Message(_KIND_OK, flags, payload, self._open[0][1])
        self._started = False
        rule = self._open.popleft()[1]
        state = self.state
        self.state = rule.on_ok or state
        if state in _HANDSHAKE:
            if rule.kind is Kind.HELLO:
                self._take_welcome(bytes(payload))
            elif rule.kind is Kind.AUTH:
                self._take_proof(bytes(payload))
        return Message(_KIND_OK, flags, payload, rule)

    def _take_error(self, flags: int, payload: bytes | memoryview) -> Message:
        rule = self._open[0][1] if self._open else None
        message = Message(Kind.ERROR, flags, payload, rule)
        try:
            code = message.failure.code
        except RemoteProtocolError:
            self.state = State.CLOSED
            raise
        if flags & _FATAL or rule is None:
            self.state = State.CLOSED
            self._open.clear()
            return message
        self._started = False
        self._open.popleft()
        if code != Code.SKIPPED:
            self.state = rule.on_error or self.state
        elif self.state is State.RUNNING:
            raise self._broken("the target passed over a request that it had begun")
        # What was sent ahead may now be skipped, each as the target will judge it.
        self._ahead = self.state
        for _, later, _ in self._open:
            if (self._ahead, later.kind, later.step) in ALLOWED:
                self._ahead = later.on_ok or self._ahead
        return message

    def _take_welcome(self, payload: bytes) -> None:
        try:
            self._agree(_handshake.agreement(payload, self.limits))
        except RemoteProtocolError:
            self.state = State.CLOSED
            raise
        self._said = (self._said[0], payload)
        if self.agreement.proof_wanted:
            self.state = self._ahead = State.GREETED
            if self._token is None:
                self.state = State.CLOSED
                raise AuthenticationError(
                    "the target asks for a shared token; name the file that holds it: --token-file"
                )
        elif self._token is not None:
            self.state = State.CLOSED
            raise AuthenticationError(
                "a token was given, but the target asks for none, so it may not be the one that is meant; "
                "start the server with --token-file, or leave the token out here"
            )

    def _take_proof(self, payload: bytes) -> None:
        if not _handshake.same(payload, _handshake.proof(self._token or b"", "target", *self._said)):
            self.state = State.CLOSED
            raise AuthenticationError("the target could not prove that it knows the token")

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        rule = None
        if kind == _OK or (kind == _ERROR and not flags):
            opened = self._open
            if not opened or opened[0][0] != number:
                self._imply(number)
            _, rule, quiet = opened[0]
            bound = rule.answer_bound
            if kind == _ERROR:
                bound = Bound.TEXT
            elif not quiet and rule.kind is _KIND_PROCESS and not self._started:
                bound = _NOTHING
                if flags != _STARTED:
                    raise self._broken("PROCESS was answered without a first OK")
            elif flags:
                raise self._broken(f"an OK with flags {flags:#x} came in answer to {rule.kind.name}")
        elif kind == _LOG and self.agreement.extensions & _LOGGING and not flags and not number:
            bound = Bound.TEXT
        elif kind == _ERROR and flags == _FATAL:
            bound = Bound.TEXT  # may come at any time, for instance before the target could read a request
        else:
            raise self._broken(f"a frame of kind {kind} with flags {flags:#x} came, which was not agreed on")
        if length > self._most_taken[bound]:
            raise self._broken(
                f"a payload of {length:,} bytes was announced where {self._most_taken[bound]:,} are the most"
            )
        if bound is _TENSORS and rule is not None and self.place is not None:
            return self.place(rule.kind, length)
        return None

    def _imply(self, number: int) -> None:
        """Take an answer as the OK to quiet requests before the one that it answers."""
        opened = self._open
        while opened and opened[0][0] != number and opened[0][2] and opened[0][1].kind is _KIND_DATA:
            self.state = opened.popleft()[1].on_ok or self.state
        if not opened or opened[0][0] != number:
            raise self._broken("an answer came to something that was not asked, or in the wrong order")


class TargetConversation(_Conversation):
    """The answering side.

    Each message must be answered (:meth:`greet`, :meth:`answer`, :meth:`error`)
    before the next one is asked for.

    Parameters
    ----------
    limits
        What this side offers and takes.
    token
        What a host must know to be served, or None.
    place
        Names memory for input tensors and parts of models.
    nonce
        Random bytes; chosen at random unless given.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        token: bytes | None = None,
        place: Place | None = None,
        nonce: bytes | None = None,
    ) -> None:
        super().__init__(limits or Limits(), token, place, nonce)
        self.number = 0  # of the last request
        self._rule: Rule | None = None  # of the last request whose header has come
        self._skipped = False
        self._quiet = False
        self._failed = False  # whether a request failed and none has been granted since
        self._owed = False  # whether that request has come whole and waits for its answer

    def next_message(self) -> Message | None:
        """Give the next request, or None while it is incomplete.

        Raises
        ------
        RemoteProtocolError
            If the host broke the rules, or a frame was damaged; :meth:`error` can still tell it so.
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
        return Message(rule.kind, flags, payload, rule, self._skipped)

    def greet(self, message: Message) -> list[Buffer]:
        """Answer a HELLO or an AUTH.

        Raises
        ------
        RemoteProtocolError
            If no version is known to both sides.
        AuthenticationError
            If the host's proof is wrong.
        """
        payload = bytes(message.payload)
        if message.kind is Kind.HELLO:
            wanted = self._token is not None
            try:
                reply, agreement = _handshake.welcome(payload, self.limits, wanted, self._nonce)
            except RemoteProtocolError:
                self.state = State.CLOSED
                raise
            self._said = (payload, reply)
            frame = self.answer((reply,))
            self._agree(agreement)
            self.state = State.GREETED if wanted else State.EMPTY
            return frame
        if not _handshake.same(payload, _handshake.proof(self._token or b"", "host", *self._said)):
            self.state = State.CLOSED
            raise AuthenticationError("a client could not prove that it knows the token")
        return self.answer((_handshake.proof(self._token or b"", "target", *self._said),))

    def answer(self, parts: Sequence[Buffer] = (), flags: int = 0) -> list[Buffer]:
        """Make the frame of an OK, or nothing where none is wanted; to PROCESS first with ``Flag.STARTED``."""
        rule = self._rule
        if rule is None or not self._owed or self._skipped:
            raise LocalProtocolError("there is nothing to say OK to")
        kind = rule.kind
        if kind is _KIND_PROCESS and (flags == _STARTED) == (self.state is _RUNNING):
            raise LocalProtocolError("PROCESS is answered with two OKs, the first with the flag STARTED")
        length = check = 0
        if parts:
            length = size_of(parts)
            if length > self._most_sent[rule.answer_bound]:
                raise LocalProtocolError(f"the answer to {rule.kind.name} has more bytes than the host takes")
            check = self._check_of(parts)
        if flags == _STARTED:
            self.state = _RUNNING
        else:
            self._owed = False
            self.state = rule.on_ok or self.state
        if self._quiet and (flags == _STARTED or kind is _KIND_DATA):
            return []
        return [header(_OK, flags, self.number, length, check), *parts]

    def error(self, failure: Failure, fatal: bool = False) -> list[Buffer]:
        """Make the frame of an ERROR; after a fatal one the line must be closed."""
        if not fatal:
            if self._rule is None or not self._owed:
                raise LocalProtocolError("there is nothing to answer with an error")
            if not self._skipped:
                self.state = self._rule.on_error or self.state
                self._failed = True
        payload = failure.pack()
        self._owed = False
        if fatal:
            self.state = State.CLOSED
        flags = _FATAL if fatal else 0
        return [header(_ERROR, flags, self.number, len(payload), self._check_of((payload,))), payload]

    def log(self, payload: bytes) -> list[Buffer]:
        """Make the frame of a log line, or nothing where the host did not agree to take any."""
        if not self.agreement.extensions & _LOGGING or self.state in (State.NEW, State.GREETED, State.CLOSED):
            return []
        return [header(_LOG, 0, 0, len(payload), self._check_of((payload,))), payload]

    def _admit(self, kind: int, flags: int, number: int, length: int) -> memoryview | None:
        if kind not in REQUESTS:
            raise self._broken(f"a frame of kind {kind} came, which is not a request")
        if self.state is not _NEW and number != self.number + 1 & _NUMBERS:
            raise self._broken("a request came twice, or one before it is missing")
        rule = ALLOWED.get((self.state, kind, flags if kind == _MODEL else 0))
        skipped = False
        if rule is None:
            rule, skipped = self._void(kind, flags), True
        else:
            self._failed = False
        quiet = False
        if flags and kind != _MODEL:
            quiet = flags == _QUIET and kind in (_DATA, _PROCESS) and self.pipelining
            if not quiet and (kind != _STATS or flags != _CLOCK):
                raise self._broken(f"{rule.kind.name} with flags {flags:#x} came")
        bound = rule.ask_bound
        if length > self._most_taken[bound]:
            raise self._broken(f"{rule.kind.name} announces {length:,} bytes, {self._most_taken[bound]:,} are the most")
        self._rule, self._skipped, self._quiet = rule, skipped, quiet
        if (bound is _TENSORS or bound is _PART) and self.place is not None and not skipped:
            return self.place(rule.kind, length)
        return None

    def _void(self, kind: int, flags: int) -> Rule:
        """Give the rule of a pipelined request that an earlier failure has made void."""
        if self.pipelining and self._failed:
            if self.state in _MODEL_LOADED and kind in (_PROCESS, int(Kind.OUTPUT)):
                return ALLOWED[State.DONE, kind, 0]
            if self.state is State.EMPTY and kind == _MODEL and flags == Flag.PART:
                return ALLOWED[State.RECEIVING, kind, flags]
        raise self._broken(f"{Kind(kind).name} with flags {flags:#x} came while the state was {self.state.value!r}")
