"""Two conversations that hear each other, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import FrameFlag, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.target import TargetConversation

NONCES = bytes(range(16)), bytes(range(16, 32))
PIPELINED = Limits(checks=3, extensions=7)


def feed(
    conversation: HostConversation | TargetConversation, data: bytes | Iterable[bytes]
) -> None:
    """Let a conversation hear bytes; it must have asked for what came before."""
    for part in [data] if isinstance(data, bytes) else data:
        view = memoryview(part).cast("B")
        while len(view):
            wanted = conversation.wanted()
            assert len(wanted) > 0, "there is no room, though messages were fetched"
            count = min(len(wanted), len(view))
            wanted[:count] = view[:count]
            conversation.received(count)
            view = view[count:]


class Talk:
    """A host and a target that have shaken hands."""

    def __init__(
        self, limits: Limits | None = None, token: bytes | None = None, number: int = 1
    ) -> None:
        self.host = HostConversation(limits, token, nonce=NONCES[0], number=number)
        self.target = TargetConversation(limits, token, nonce=NONCES[1])
        for frames in (self.host.build_hello, *([self.host.build_proof] if token else [])):
            feed(self.target, frames())
            feed(self.host, self.target.answer_handshake(self.target.next_message()))
            assert self.host.next_message().kind is FrameKind.OK

    def asks(self, kind: FrameKind, payload: bytes = b"", flags: int = 0) -> Message:
        """The host asks; gives what the target hears."""
        feed(self.target, self.host.ask(kind, (payload,) if payload else (), flags))
        message = self.target.next_message()
        assert message is not None
        return message

    def answers(self, payload: bytes = b"", flags: int = 0) -> Message | None:
        """The target says OK; gives what the host hears."""
        feed(self.host, self.target.answer((payload,) if payload else (), flags))
        return self.host.next_message()

    def exchange(
        self, kind: FrameKind, payload: bytes = b"", answer: bytes = b"", flags: int = 0
    ) -> Message:
        """Ask and answer."""
        self.asks(kind, payload, flags)
        if kind is FrameKind.PROCESS:
            assert self.answers(b"", FrameFlag.STARTED).flags == FrameFlag.STARTED
        message = self.answers(answer)
        assert message is not None
        return message

    def load(self) -> None:
        """Bring a model to the target."""
        self.exchange(FrameKind.MODEL, bytes(40) + b"{}", bytes(8), FrameFlag.BEGIN)
        self.exchange(FrameKind.MODEL, bytes(16), b"", FrameFlag.PART)
        self.exchange(FrameKind.MODEL, b"", bytes(8), FrameFlag.END)
