"""Coverage-guided fuzzing of both sides of a conversation.

Any bytes, in any pieces, must end in nothing or in one error of nnpipe's tree,
and may never make a side hold more memory than its limits allow::

    pip install atheris
    mkdir -p build/corpus && python fuzz/conversation.py --seeds build/corpus
    python fuzz/conversation.py build/corpus -max_len=4096 -max_total_time=600

Without atheris the same function runs once on each file named, or on what
comes on the standard input, which is how a crash is looked into::

    python fuzz/conversation.py crash-0123abcd

The first byte of an input chooses the side, a token, and how far the
conversation is already; the second one how it is cut.  The rest is heard as it
is, or else is read as a list of frames that get right headers and checks, since
no mutation ever finds those.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

if atheris is not None and __name__ == "__main__":
    with atheris.instrument_imports(include=["nnpipe"]):
        import nnpipe.protocols.conversation.host
        import nnpipe.protocols.conversation.target  # noqa: F401

from nnpipe.core.errors import NNPipeError
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind, pack_header
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import ConversationState
from nnpipe.protocols.conversation.target import TargetConversation

LIMITS = Limits(largest=4096, part=512, checks=3, extensions=7)
TOKEN = b"a token that both sides know"
MOST_HELD = (1 << 20) + (1 << 14)  # the longest text or offer, and what is read ahead

AT_HOST, WITH_TOKEN, GREETED, LOADED, FRAMED = 1, 2, 4, 8, 16


def one_input(data: bytes) -> str:
    """Let one side of a conversation hear ``data``; gives how it ended: "open", or the name of an
    error.

    Raises
    ------
    AssertionError
        If a side holds too much memory, or goes on after an error.
    Exception
        Anything that is not of nnpipe's tree: a bug.
    """
    if len(data) < 2:
        return "open"
    mode, cut, rest = data[0], data[1], data[2:]
    host = HostConversation(
        LIMITS, TOKEN if mode & WITH_TOKEN else None, nonce=bytes(range(16)), number=1
    )
    target = TargetConversation(
        LIMITS, TOKEN if mode & WITH_TOKEN else None, nonce=bytes(range(16, 32))
    )
    hello = host.build_hello()
    if mode & (GREETED | LOADED):
        _greet(host, target, hello)
        if mode & LOADED:
            _load(host, target)
    side: HostConversation | TargetConversation = host if mode & AT_HOST else target
    if side is host and mode & (GREETED | LOADED):
        _ask(host)
    first = host._open[0][0] if side is host else target.number + 1
    heard = b"".join(_framed(rest, first, side)) if mode & FRAMED else rest
    try:
        for piece in _pieces(heard, cut):
            _hear(side, piece)
    except NNPipeError as error:
        ended = error
    else:
        return "open"
    assert "\n" not in str(ended)
    assert side.state is ConversationState.CLOSED, f"{side.state} after {ended!r}"
    if isinstance(side, TargetConversation):
        side.error(ErrorPayload(ErrorCode.PROTOCOL, str(ended)), fatal=True)
    return type(ended).__name__


def seeds() -> list[bytes]:
    """Give inputs to begin with: each side at each step, raw and framed, cut in several ways."""
    hello = b"".join(map(bytes, HostConversation(LIMITS, nonce=bytes(16), number=1).build_hello()))
    frames = bytes.fromhex("05000474657374 06000000 07000000 0a000000 0b000474657374")
    found = []
    for mode in range(32):
        for cut in (0, 7, 255):
            found.append(bytes([mode, cut]) + (frames if mode & FRAMED else hello))
    return found


def _pieces(data: bytes, cut: int) -> Iterator[bytes]:
    """Cut into pieces whose sizes go round 1, ``cut`` and all that is left of 64 times that."""
    sizes = (1, cut + 1, 64 * (cut + 1))
    at = number = 0
    while at < len(data):
        size = sizes[number % 3]
        yield data[at : at + size]
        at, number = at + size, number + 1


def _framed(
    data: bytes, number: int, side: HostConversation | TargetConversation
) -> Iterator[bytes]:
    """Read kind, flags, a step of the number, a length and so many bytes, over and over, as
    right frames.
    """
    at = 0
    while len(data) - at >= 4:
        kind, flags, length, step = (
            data[at],
            data[at + 1],
            data[at + 2] * (16 if data[at + 3] & 1 else 1),
            data[at + 3],
        )
        payload = data[at + 4 : at + 4 + length]
        at += 4 + len(payload)
        check = side.agreement.check.of((payload,)) if payload else 0
        yield pack_header(kind, flags, number, len(payload), check) + payload
        # An answer may come twice to one request (PROCESS); a request never has the number of
        # another.
        number = number + (step >> 1 & 1 ^ 1) & 0xFFFFFFFF


def _hear(side: HostConversation | TargetConversation, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        wanted = side.wanted()
        assert len(wanted) > 0, "there is no room, though messages were fetched"
        count = min(len(wanted), len(view))
        wanted[:count] = view[:count]
        side.received(count)
        view = view[count:]
        while (message := side.next_message()) is not None:
            if isinstance(side, TargetConversation):
                _answer(side, message)
            elif message.kind is FrameKind.ERROR:
                assert "\n" not in str(message.failure)
        reader = side.reader
        held = len(reader._staging) + (0 if reader._payload is None else len(reader._payload))
        assert held <= MOST_HELD, f"{held:,} bytes are held"


def _answer(target: TargetConversation, message: Message) -> list[bytes]:
    """Answer as a server whose model gives zeros; one whose payload begins with 255 fails."""
    if message.kind in (FrameKind.HELLO, FrameKind.AUTH):
        return target.answer_handshake(message)
    if message.skipped:
        return target.error(ErrorPayload(ErrorCode.SKIPPED, ""))
    if bytes(message.payload[:1]) == b"\xff":
        return target.error(ErrorPayload(ErrorCode.RUNTIME, "it failed"))
    if message.kind is FrameKind.PROCESS:
        return [*target.answer((), FrameFlag.STARTED), *target.answer((bytes(32),))]
    content = {
        FrameKind.OUTPUT: bytes(80),
        FrameKind.INFER: bytes(112),
        FrameKind.STATS: bytes(48),
        FrameKind.MODEL: bytes(8),
    }.get(message.kind, b"")
    return target.answer((content,) if content and message.flags != FrameFlag.PART else ())


def _exchange(host: HostConversation, target: TargetConversation, frames: list[bytes]) -> None:
    """Bring a request over and its answer back."""
    _fill(target, frames)
    message = target.next_message()
    assert message is not None
    _fill(host, _answer(target, message))
    assert host.next_message() is not None


def _fill(side: HostConversation | TargetConversation, frames: list[bytes]) -> None:
    """Let a side hear one frame without asking what it says."""
    view = memoryview(b"".join(map(bytes, frames)))
    while len(view):
        wanted = side.wanted()
        count = min(len(wanted), len(view))
        wanted[:count] = view[:count]
        side.received(count)
        view = view[count:]


def _greet(host: HostConversation, target: TargetConversation, hello: list[bytes]) -> None:
    _exchange(host, target, hello)
    if host.state is ConversationState.GREETED:
        _exchange(host, target, host.build_proof())


def _load(host: HostConversation, target: TargetConversation) -> None:
    _exchange(host, target, host.ask(FrameKind.MODEL, (bytes(40), b"{}"), FrameFlag.BEGIN))
    _exchange(host, target, host.ask(FrameKind.MODEL, (bytes(16),), FrameFlag.PART))
    _exchange(host, target, host.ask(FrameKind.MODEL, (), FrameFlag.END))


def _ask(host: HostConversation) -> None:
    """Ask what may be asked now, as much of it ahead as possible."""
    if host.state is ConversationState.EMPTY:
        host.ask(FrameKind.STATS)
        return
    for _ in range(3):
        host.ask(FrameKind.DATA, (b"inputs",))
        host.ask(FrameKind.PROCESS)
        host.ask(FrameKind.OUTPUT)
        host.ask(FrameKind.INFER, (b"inputs",))


def main(arguments: list[str]) -> int:
    """Fuzz, write seeds (``--seeds FOLDER``), or run on files or the standard input."""
    if arguments[:1] == ["--seeds"]:
        folder = Path(arguments[1])
        for number, seed in enumerate(seeds()):
            (folder / f"seed{number:03d}").write_bytes(seed)
        return 0
    files = [Path(name) for name in arguments if Path(name).is_file()]
    if atheris is not None and not files:
        atheris.Setup([sys.argv[0], *arguments], one_input)
        atheris.Fuzz()
        return 0
    for file in files:
        print(f"{file}: {one_input(file.read_bytes())}")
    if not files:
        print(one_input(sys.stdin.buffer.read()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
