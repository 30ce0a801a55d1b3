"""Arbitrary and mutated byte strings for a conversation, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from talk import NONCES, Talk, feed

from nnpipe.core.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind, pack_header
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import ConversationState
from nnpipe.protocols.conversation.target import TargetConversation

LIMITS = Limits(largest=4096, part=512, checks=3, extensions=7)
MOST = 1 << 20
ASKED = (
    (FrameKind.DATA, (b"inputs",)),
    (FrameKind.PROCESS, ()),
    (FrameKind.OUTPUT, ()),
    (FrameKind.INFER, (b"others",)),
)
TOKEN = b"a token that both sides know"


class Tape:
    """What both sides say in a good conversation, byte for byte."""

    def __init__(self, token: bytes | None) -> None:
        self.asked = self.answered = b""
        host, target = (
            HostConversation(LIMITS, token, nonce=NONCES[0], number=7),
            TargetConversation(LIMITS, token, nonce=NONCES[1]),
        )
        self._host, self._target = host, target
        self._pass(host.build_hello())
        if token:
            self._pass(host.build_proof())
        self._pass(host.ask(FrameKind.MODEL, (bytes(40), b'{"format":"fake"}'), FrameFlag.BEGIN))
        self._pass(host.ask(FrameKind.MODEL, (bytes(8), bytes(range(200))), FrameFlag.PART))
        self._pass(host.ask(FrameKind.MODEL, (), FrameFlag.END))
        self._pass(host.ask(FrameKind.STATS))
        for n in range(2):
            self._pass(host.ask(FrameKind.DATA, (bytes([n]) * 300,)))
            self._pass(host.ask(FrameKind.PROCESS))
            self._pass(host.ask(FrameKind.OUTPUT))
        ahead = [
            host.ask(FrameKind.DATA, (b"ahead",)),
            host.ask(FrameKind.PROCESS),
            host.ask(FrameKind.OUTPUT),
        ]
        ahead += [host.ask(FrameKind.INFER, (bytes([n]) * 300,)) for n in range(2)]
        self._pass([part for frames in ahead for part in frames])

    def _pass(self, frames: list[bytes]) -> None:
        asked = b"".join(map(bytes, frames))
        self.asked += asked
        feed(self._target, asked)
        for said in replies(self._target):
            self.answered += said
            feed(self._host, said)
        while self._host.next_message() is not None:
            pass


def output_of(number: int) -> bytes:
    """What a good target answers to OUTPUT."""
    return number.to_bytes(4, "little") * 20


def replies(target: TargetConversation) -> Iterator[bytes]:
    """Answer whatever the target hears."""
    while (message := target.next_message()) is not None:
        if message.kind in (FrameKind.HELLO, FrameKind.AUTH):
            yield joined(target.answer_handshake(message))
        elif message.skipped:
            yield joined(target.error(ErrorPayload(ErrorCode.SKIPPED, "")))
        elif message.kind is FrameKind.PROCESS:
            yield joined(target.answer((), FrameFlag.STARTED))
            yield joined(target.answer((bytes(32),)))
        else:
            output = output_of(target.number)
            answers = {
                FrameKind.OUTPUT: output,
                FrameKind.INFER: bytes(32) + output,
                FrameKind.STATS: bytes(48),
                FrameKind.MODEL: bytes(8),
            }
            content = answers.get(message.kind, b"")
            yield joined(
                target.answer((content,) if content and message.flags != FrameFlag.PART else ())
            )


def joined(frames: list[bytes]) -> bytes:
    return b"".join(map(bytes, frames))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Spoil bytes as lines, proxies and people do."""
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        if not spoilt:
            break
        at = chance.randrange(len(spoilt))
        length = chance.choice((1, 4, 24, 100))
        what = chance.randrange(8)
        if what == 0:
            spoilt[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del spoilt[at : at + length]
        elif what == 2:
            spoilt[at:at] = spoilt[at : at + length]
        elif what == 3:
            spoilt[at:at] = chance.randbytes(length)
        elif what == 4:
            spoilt[at : at + length] = chance.randbytes(len(spoilt[at : at + length]))
        elif what == 5:
            del spoilt[at:]
        elif what == 6:
            other = chance.randrange(len(spoilt))
            spoilt[at : at + 24], spoilt[other : other + 24] = (
                spoilt[other : other + 24],
                spoilt[at : at + 24],
            )
        else:
            # A header whose own check is right.
            fields = (
                chance.randrange(13),
                chance.choice((0, 1, 2, 64, 128, 255)),
                chance.choice((7, 8, 9, 0, 1 << 31)),
            )
            spoilt[at:at] = pack_header(
                *fields,
                chance.choice((0, 1, 32, 4096, 1 << 20, 0xFFFF_FFFF)),
                chance.getrandbits(64),
            )
    return bytes(spoilt)


def pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Cut anywhere."""
    most = (
        chance.choice((1, 10, 100, 10_000))
        if len(data) < 200
        else chance.choice((30, 1000, 10_000))
    )
    while data:
        size = chance.randint(1, most)
        yield data[:size]
        data = data[size:]


def torment_target(data: bytes, chance: random.Random, token: bytes | None) -> None:
    """Let a target hear anything; it answers, or ends the conversation with an error of the
    tree.
    """
    target = TargetConversation(LIMITS, token, nonce=NONCES[1])
    for piece in pieces(data, chance):
        feed(target, piece)
        try:
            for _ in replies(target):
                pass
        except ProtocolError:
            target.error(ErrorPayload(ErrorCode.PROTOCOL, ""), fatal=True)
            assert target.state is ConversationState.CLOSED
            return
        check_memory(target)


def torment_host(data: bytes, chance: random.Random) -> int:
    """Let a host hear anything in answer to what it asks; gives how many right results it took."""
    talk = Talk(LIMITS, number=7)
    talk.load()
    host = talk.host
    taken = 0
    asked = [host.ask(kind, parts) for kind, parts in ASKED]
    expected = [
        bytes(32) * (kind is FrameKind.INFER) + output_of(int.from_bytes(frames[0][4:8], "little"))
        for (kind, _), frames in zip(ASKED, asked, strict=True)
        if kind in (FrameKind.OUTPUT, FrameKind.INFER)
    ]
    for piece in pieces(data, chance):
        feed(host, piece)
        try:
            while (message := host.next_message()) is not None:
                if message.kind is FrameKind.OK and message.rule.kind in (
                    FrameKind.OUTPUT,
                    FrameKind.INFER,
                ):
                    assert message.payload == expected.pop(0), (
                        "a wrong result was taken for a right one"
                    )
                    taken += 1
                if message.kind is FrameKind.ERROR:
                    str(message.failure)
        except RemoteProtocolError:
            return taken
        except LocalProtocolError:  # it goes on asking after a fatal error
            assert host.state is ConversationState.CLOSED
            return taken
        check_memory(host)
    return taken


def right_answers() -> bytes:
    """What a good target answers to the host of :func:`torment_host`."""
    talk = Talk(LIMITS, number=7)
    talk.load()
    for kind, parts in ASKED:
        feed(talk.target, talk.host.ask(kind, parts))
    return b"".join(replies(talk.target))


def check_memory(conversation: HostConversation | TargetConversation) -> None:
    reader = conversation.reader
    held = len(reader._staging) + (0 if reader._payload is None else len(reader._payload))
    assert held <= MOST + (1 << 14)


def torment(count: int, seed: int) -> dict[str, int]:
    """Do all of it so many times; gives how often each thing was done."""
    chance = random.Random(seed)
    tapes = {token: Tape(token) for token in (None, TOKEN)}
    answers = right_answers()
    done = {"arbitrary": 0, "mutated": 0, "answers": 0, "results": 0}
    for _ in range(count):
        what = chance.randrange(3)
        token = chance.choice((None, TOKEN))
        if what == 0:
            start = chance.choice((b"", tapes[token].asked[: chance.randrange(3) * 56], b"n\1"))
            torment_target(
                start + chance.randbytes(chance.choice((3, 30, 300, 3000))), chance, token
            )
            done["arbitrary"] += 1
        elif what == 1:
            torment_target(mutated(tapes[token].asked, chance), chance, token)
            done["mutated"] += 1
        else:
            data = mutated(answers, chance) if chance.random() < 0.8 else chance.randbytes(200)
            done["results"] += torment_host(data, chance)
            done["answers"] += 1
    return done
