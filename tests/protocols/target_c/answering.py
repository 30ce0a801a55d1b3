"""What the target of ``answering.c`` should answer, by the target in Python; and conversations
to let both answer.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from noise import mutated, pieces
from talk import NONCES, feed

from nnpipe.core.errors import ProtocolError
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import (
    CRC32,
    HEADER_SIZE,
    ErrorCode,
    FrameFlag,
    FrameKind,
    pack_header,
    read_header,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import (
    ErrorPayload,
    ModelOffer,
    Stats,
    pack_count,
    unpack_count,
)
from nnpipe.protocols.conversation.rules import ConversationState
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.worker import create_failure
from nnpipe.protocols.target_c import CORE, FOLDER, PROOF

LIMITS = Limits(largest=512, part=64, extensions=7)
TOKEN = b"a token that both sides know"
STAMPS = struct.pack("<4Q", *[1000] * 4)
SOURCE = Path(__file__).with_name("answering.c")
SANITISED = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Tape(NamedTuple):
    """What a host says, whether a token is wanted, and the size of pieces."""

    heard: bytes
    token: bool = False
    cut: int = 255


class Frame(NamedTuple):
    """A frame of the target; of an ERROR only the code is kept, since texts differ."""

    kind: int
    flags: int
    number: int
    content: bytes


def build(folder: Path, flags: Sequence[str] = ("-O0",)) -> Path:
    """Compile ``answering.c`` with every warning."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    strict = [
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wno-sign-conversion",
        "-Werror",
    ]
    sources = [str(path) for path in (SOURCE, *CORE, PROOF)]
    program = folder / "answering"
    done = subprocess.run(
        [compiler, *strict, *flags, "-I", str(FOLDER), "-o", str(program), *sources],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return program


def by_program(program: Path, tapes: Sequence[Tape], *words: str) -> list[list[Frame]]:
    """Let the program answer."""
    given = b"".join(
        struct.pack("<IBB", len(tape.heard), tape.token, tape.cut) + tape.heard for tape in tapes
    )
    done = subprocess.run([str(program), *words], input=given, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[:2000]
    found, at = [], 0
    for _ in tapes:
        (length,) = struct.unpack_from("<I", done.stdout, at)
        found.append(frames_in(done.stdout[at + 4 : at + 4 + length]))
        at += 4 + length
    assert at == len(done.stdout)
    return found


def frames_in(data: bytes) -> list[Frame]:
    """Read frames, all of which must be right."""
    found, at = [], 0
    while at < len(data):
        _, _, kind, flags, number, length, _, _ = read_header(data, at)
        payload = data[at + HEADER_SIZE : at + HEADER_SIZE + length]
        assert (
            pack_header(kind, flags, number, length, CRC32.of([payload]))
            == data[at : at + HEADER_SIZE]
        )
        assert len(payload) == length
        found.append(
            Frame(kind, flags, number, payload[:4] if kind == FrameKind.ERROR else payload)
        )
        if kind == FrameKind.ERROR:
            payload[4:].decode("utf-8")
        at += HEADER_SIZE + length
    return found


class Service:
    """What ``answering.c`` does with requests."""

    def __init__(self, uses_up: bool = False) -> None:
        self._uses_up, self._used = uses_up, False
        self._offered = self._had = self._inferences = 0
        self._inputs = bytes(24)
        self._outputs = b""

    def answer(self, target: TargetConversation, message: Message) -> list[bytes]:
        """Return the frames of the answer."""
        if message.skipped:
            return target.error(ErrorPayload(ErrorCode.SKIPPED, ""))
        payload = bytes(message.payload)
        if message.kind is FrameKind.PROCESS and not self._used:
            started = target.answer((), FrameFlag.STARTED)
            code = self._run()
            return [*started, *(_error(target, code) if code else target.answer((STAMPS,)))]
        found = self._done(target, message, payload)
        if isinstance(found, ErrorCode):
            return _error(target, found)
        return target.answer((found,) if found else ())

    def _done(
        self, target: TargetConversation, message: Message, payload: bytes
    ) -> bytes | ErrorCode:
        kind = message.kind
        if kind is FrameKind.MODEL:
            return self._model(message.flags, payload)
        if kind is FrameKind.STATS:
            return Stats(0, 10**9, 1000, 1000, self._inferences, 77 if self._loaded else 0).pack()
        if kind is FrameKind.PROCESS:
            return ErrorCode.RUNTIME
        if kind in (FrameKind.DATA, FrameKind.INFER):
            if len(payload) != 24:
                return ErrorCode.TENSORS
            self._inputs, self._used = payload, False
            code = self._run() if kind is FrameKind.INFER else None
            if code or kind is FrameKind.DATA:
                return code or b""
        if len(self._outputs) > target.agreement.sendable:
            return ErrorCode.TENSORS
        return self._outputs if kind is FrameKind.OUTPUT else STAMPS + self._outputs

    _loaded = False

    def _model(self, flags: int, payload: bytes) -> bytes | ErrorCode:
        if flags == FrameFlag.BEGIN:
            size = ModelOffer.unpack(payload[:40] + b"{}").size
            if size > 200:
                return ErrorCode.NO_SPACE
            self._offered, self._had = size, 0
            return pack_count(0)
        if flags == FrameFlag.END:
            self._loaded = self._offered == self._had
            self._inferences = 0 if self._loaded else self._inferences
            return pack_count(77) + b'{"io":{},"about":{}}' if self._loaded else ErrorCode.MODEL
        content = payload[8:]
        if (
            len(payload) < 8
            or unpack_count(payload[:8]) != self._had
            or self._had + len(content) > self._offered
        ):
            return ErrorCode.MODEL
        if b"\xee" in content:
            return ErrorCode.NO_SPACE
        self._had += len(content)
        return b""

    def _run(self) -> ErrorCode | None:
        self._used = self._uses_up
        if self._inputs[8] == 255:
            return ErrorCode.RUNTIME
        self._inferences += 1
        first, second = ([value + 1 & 255 for value in self._inputs[at : at + 4]] for at in (0, 8))
        self._outputs = bytes(first[:3]) + bytes(5) + bytes(second)
        return None


def by_python(tape: Tape, uses_up: bool = False) -> list[Frame]:
    """Let the target in Python answer."""
    target = TargetConversation(LIMITS, TOKEN if tape.token else None, nonce=NONCES[1])
    service, said = Service(uses_up), b""
    for piece in pieces(tape.heard, random.Random(0)):
        feed(target, piece)
        try:
            while (message := target.next_message()) is not None:
                said += b"".join(map(bytes, _answered(target, message, service)))
        except ProtocolError as error:
            fatal = target.error(create_failure(error), fatal=True)
            return frames_in(said + b"".join(map(bytes, fatal)))
    return frames_in(said)


def _answered(target: TargetConversation, message: Message, service: Service) -> list[bytes]:
    if message.kind in (FrameKind.HELLO, FrameKind.AUTH):
        return target.answer_handshake(message)
    if message.kind is FrameKind.MODEL and message.flags == FrameFlag.BEGIN and not message.skipped:
        ModelOffer.unpack(bytes(message.payload[:40]) + b"{}")  # raises where it is too short
    return service.answer(target, message)


def _error(target: TargetConversation, code: ErrorCode) -> list[bytes]:
    return target.error(ErrorPayload(code, ""))


def conversation(chance: random.Random, token: bool) -> bytes:
    """A conversation in which all is right, but for inputs that the model does not take."""
    host = HostConversation(
        Limits(largest=chance.choice((4096, 16, 11)), extensions=7),
        TOKEN if token else None,
        nonce=NONCES[0],
        number=7,
    )
    target = TargetConversation(LIMITS, TOKEN if token else None, nonce=NONCES[1])
    service, said = Service(), b""

    def ask(frames: list[bytes]) -> None:
        nonlocal said
        data = b"".join(map(bytes, frames))
        said += data
        feed(target, data)
        while (message := target.next_message()) is not None:
            feed(host, _answered(target, message, service))
        while host.next_message() is not None:
            pass

    ask(host.build_hello())
    if token:
        ask(host.build_proof())
    size = chance.choice((0, 1, 64, 200))
    ask(host.ask(FrameKind.STATS, (), chance.choice((0, 1))))
    ask(
        host.ask(
            FrameKind.MODEL, (ModelOffer(size, bytes(32), {"format": "c"}).pack(),), FrameFlag.BEGIN
        )
    )
    for at in range(0, size, 64):
        ask(host.ask(FrameKind.MODEL, (pack_count(at), bytes(min(64, size - at))), FrameFlag.PART))
    ask(host.ask(FrameKind.MODEL, (), FrameFlag.END))
    for _ in range(chance.randrange(4)):
        inputs = chance.choice((bytes(range(24)), chance.randbytes(24), b"\xff" * 24, b"too few"))
        if chance.random() < 0.5:
            ask(host.ask(FrameKind.INFER, (inputs,)))
        else:
            ahead = [
                host.ask(FrameKind.DATA, (inputs,)),
                host.ask(FrameKind.PROCESS),
                host.ask(FrameKind.OUTPUT),
            ]
            ask([part for frames in ahead for part in frames])
        if host.state is ConversationState.DONE and chance.random() < 0.3:
            ask(host.ask(FrameKind.PROCESS))  # with the same inputs
    return said


def framed(chance: random.Random, number: int) -> bytes:
    """Requests of any kind, flags and length, in right frames with numbers that follow one
    another.
    """
    found = b""
    for _ in range(chance.randrange(1, 8)):
        kind = chance.choice((3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 11, 11, chance.randrange(256)))
        flags = chance.choice((0, 0, 0, 1, 2, chance.randrange(256)))
        length = chance.choice((0, 0, 7, 8, 16, 24, 24, 24, 32, 40, 72, 73, 200, 513))
        payload = chance.choice((bytes(length), chance.randbytes(length), b"\xff" * length))
        found += pack_header(kind, flags, number, length, CRC32.of([payload])) + payload
        number = number + 1 & 0xFFFFFFFF
    return found


def tapes(count: int, seed: int) -> list[Tape]:
    """Good, mutated and arbitrary conversations."""
    chance = random.Random(seed)
    found = []
    for n in range(count):
        token, cut = chance.random() < 0.3, chance.choice((0, 1, 7, 255))
        heard = conversation(chance, token)
        how = n % 4
        if how == 1:
            heard = mutated(heard, chance)
        elif how == 2:  # go on with whatever frames after a number of right ones
            at, number = 0, 6
            for _ in range(chance.randrange(12)):
                if at < len(heard):
                    _, _, _, _, number, length, _, _ = read_header(heard, at)
                    at += HEADER_SIZE + length
            heard = heard[:at] + framed(chance, number + 1)
        elif how == 3 and chance.random() < 0.2:
            heard = chance.randbytes(chance.choice((3, 30, 300)))
        found.append(Tape(heard, token, cut))
    return found
