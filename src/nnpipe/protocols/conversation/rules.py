"""The rules of the protocol as data: which request is allowed in which state.

A host sends requests and a target answers.  A target sends nothing without a
request, except for LOG, if that extension was agreed on, and for an ERROR with the
flag FATAL before it closes the connection.

Both sides track the state of the conversation, which changes when the target
answers.  The tables of ``docs/protocol.md`` are printed from here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag

from nnpipe.protocols.conversation.frame import FrameFlag, FrameKind


class ConversationState(Enum):
    """The state of a conversation."""

    NEW = "new"
    GREETED = "greeted"
    EMPTY = "empty"
    RECEIVING = "receiving"
    READY = "ready"
    LOADED = "loaded"
    RUNNING = "running"
    DONE = "done"
    CLOSED = "closed"

    # The default hash goes through a property, and states are hashed with every frame.
    __hash__ = object.__hash__


STATES: dict[ConversationState, str] = {
    ConversationState.NEW: "nothing has been said",
    ConversationState.GREETED: "the target asks for the host's proof",
    ConversationState.EMPTY: "the target has no model",
    ConversationState.RECEIVING: "parts of a model are on their way",
    ConversationState.READY: "the model is loaded",
    ConversationState.LOADED: "its inputs are set",
    ConversationState.RUNNING: "it runs; the second OK is awaited",
    ConversationState.DONE: "its outputs can be fetched",
    ConversationState.CLOSED: "over",
}


class Extension(IntFlag):
    """The extensions on which both sides may agree in the handshake."""

    PIPELINING = 1
    LOG = 2
    INFER = 4


EXTENSIONS: dict[Extension, str] = {
    Extension.PIPELINING: "the host sends the next MODEL parts, DATA, PROCESS and OUTPUT without waiting for answers",
    Extension.LOG: "the target sends what its log says as LOG frames, between answers",
    Extension.INFER: "the host asks for DATA, PROCESS and OUTPUT in one request, INFER",
}


class Bound(Enum):
    """The limits on the size of payloads."""

    NOTHING = "nothing"
    HELLO = "hello"
    PROOF = "proof"
    PART = "part"
    DESCRIPTION = "description"
    TENSORS = "tensors"
    STAMPED = "stamped"
    TIMES = "times"
    TEXT = "text"
    ROWS = "rows"

    __hash__ = object.__hash__


FIXED_BOUNDS: dict[Bound, int] = {
    Bound.NOTHING: 0,
    Bound.HELLO: 32,
    Bound.PROOF: 32,
    Bound.DESCRIPTION: 1 << 20,
    Bound.TIMES: 64,
    Bound.TEXT: 4096,
    Bound.ROWS: 1 << 20,
}
STAMPS_SIZE = 32
AGREED_BOUNDS: dict[Bound, str] = {
    Bound.PART: "part size + 8",
    Bound.TENSORS: "the receiver's largest",
    Bound.STAMPED: f"the receiver's largest + {STAMPS_SIZE}",
}


@dataclass(frozen=True)
class Rule:
    """A request, the states in which it is allowed, and the state after its answer.

    ``None`` for ``on_ok`` or ``on_error`` leaves the state unchanged.  A request
    with an ``extension`` is allowed only if that extension was agreed on.
    """

    kind: FrameKind
    states: tuple[ConversationState, ...]
    on_ok: ConversationState | None
    on_error: ConversationState | None
    asks: str
    ask_bound: Bound
    answers: str
    answer_bound: Bound
    step: int = 0
    step_name: str = ""
    pipelined: bool = False
    extension: Extension | None = None


_WITH_MODEL = (ConversationState.READY, ConversationState.LOADED, ConversationState.DONE)
_SETTLED = (ConversationState.EMPTY, *_WITH_MODEL)

RULES = (
    Rule(
        FrameKind.HELLO, (ConversationState.NEW,), ConversationState.EMPTY, ConversationState.CLOSED,
        "versions, extensions, checks, largest payload, nonce", Bound.HELLO,
        "what was chosen, largest payload, part size, nonce; may ask for AUTH", Bound.HELLO,
    ),
    Rule(
        FrameKind.AUTH, (ConversationState.GREETED,), ConversationState.EMPTY, ConversationState.CLOSED,
        "the host's proof of the token", Bound.PROOF,
        "the target's proof of the token", Bound.PROOF,
    ),
    Rule(
        FrameKind.MODEL, (*_SETTLED, ConversationState.RECEIVING), ConversationState.RECEIVING, ConversationState.EMPTY,
        "size and SHA-256 of the file, and its description", Bound.DESCRIPTION,
        "how many bytes of the file the target has already", Bound.TIMES,
        FrameFlag.BEGIN, "begin",
    ),
    Rule(
        FrameKind.MODEL, (ConversationState.RECEIVING,), ConversationState.RECEIVING, ConversationState.EMPTY,
        "offset in the file, and bytes from there", Bound.PART,
        "nothing", Bound.NOTHING,
        FrameFlag.PART, "part", pipelined=True,
    ),
    Rule(
        FrameKind.MODEL, (ConversationState.RECEIVING,), ConversationState.READY, ConversationState.EMPTY,
        "nothing", Bound.NOTHING,
        "time to load, and the tensors as the runtime names them", Bound.DESCRIPTION,
        FrameFlag.END, "end",
    ),
    Rule(
        FrameKind.DATA, _WITH_MODEL, ConversationState.LOADED, ConversationState.READY,
        "the input tensors", Bound.TENSORS,
        "nothing", Bound.NOTHING, pipelined=True,
    ),
    Rule(
        FrameKind.PROCESS, (ConversationState.LOADED, ConversationState.DONE),
        ConversationState.DONE, ConversationState.READY,
        "nothing", Bound.NOTHING,
        "first OK (flag STARTED): nothing; second OK: the target's stamps", Bound.TIMES, pipelined=True,
    ),
    Rule(
        FrameKind.OUTPUT, (ConversationState.DONE,), ConversationState.DONE, ConversationState.READY,
        "nothing", Bound.NOTHING,
        "the output tensors", Bound.TENSORS, pipelined=True,
    ),
    Rule(
        FrameKind.INFER, _WITH_MODEL, ConversationState.DONE, ConversationState.READY,
        "the input tensors", Bound.TENSORS,
        "the target's stamps, then the output tensors", Bound.STAMPED, pipelined=True, extension=Extension.INFER,
    ),
    Rule(
        FrameKind.STATS, _SETTLED, None, None,
        "nothing; flag CLOCK: only the clock is wanted", Bound.NOTHING,
        "kind of counter, clock, counts, samples of the target's resources", Bound.ROWS,
    ),
)  # fmt: skip

ALLOWED: dict[tuple[ConversationState, int, int], Rule] = {
    (state, int(rule.kind), int(rule.step)): rule for rule in RULES for state in rule.states
}
"""The rule by state, kind and step (the flags of MODEL, otherwise 0)."""


@functools.cache
def select_rules(extensions: int) -> Mapping[tuple[ConversationState, int, int], Rule]:
    """Return those rules of :data:`ALLOWED` that need no other than these extensions."""
    return {
        key: rule for key, rule in ALLOWED.items() if not int(rule.extension or 0) & ~extensions
    }


REQUESTS = frozenset(int(rule.kind) for rule in RULES)
