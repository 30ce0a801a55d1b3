"""Write the golden conversations of this folder anew.

    python tests/data/conversations/record.py

Do so only when the protocol has changed on purpose: other implementations are
tested against these files.  Nonces, numbers, tokens and clocks are fixed here,
so the same code always writes the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.core.errors import AuthenticationError, RemoteProtocolError
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import (
    CRC32,
    HEADER_SIZE,
    XXH3,
    ErrorCode,
    FrameFlag,
    FrameKind,
    pack_header,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.packets import PacketType, encode
from nnpipe.protocols.conversation.payloads import (
    NO_GPU,
    Counter,
    ErrorPayload,
    LoadedModel,
    ModelOffer,
    Stats,
    pack_count,
    pack_log,
    pack_row,
    pack_stamps,
)
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.worker import create_failure

FOLDER = Path(__file__).parent
NONCES = bytes(range(0x10, 0x20)), bytes(range(0xA0, 0xB0))
TOKEN, STRANGE_TOKEN = b"a token that both sides know", b"a token that only the host knows"
SERVER = Limits(largest=1 << 28, part=1 << 20, extensions=7, checks=XXH3.bit | CRC32.bit)
BOARD = Limits(largest=16, part=64, extensions=0, checks=CRC32.bit)
MODEL = bytes(n * 7 % 251 for n in range(100))
DESCRIPTION = {
    "format": "fake",
    "io": {},
    "frameworks": [],
    "target": "cpu",
    "suffix": ".fake",
    "name": "",
}
OFFER = ModelOffer(len(MODEL), hashlib.sha256(MODEL).digest(), DESCRIPTION).pack()
STAMPS = pack_stamps(1000, 1100, 3100, 3150)
ROWS = pack_row(900, 50 << 20, 1 << 30, NO_GPU, 97.5, 0.0) + pack_row(
    1000, 51 << 20, 1 << 30, 1 << 28, 99.0, 12.5
)
BEGIN, PART, END, STARTED = (
    int(flag) for flag in (FrameFlag.BEGIN, FrameFlag.PART, FrameFlag.END, FrameFlag.STARTED)
)


class Recorder:
    """A host and a target; notes what each says."""

    def __init__(self, scene: Scene) -> None:
        self.host = HostConversation(scene.offers, scene.host_token, nonce=NONCES[0], number=0x0102)
        self.target = TargetConversation(scene.takes, scene.token, nonce=NONCES[1])
        self.lines: list[tuple[str, str, bytes]] = []  # direction, what it is, bytes
        self._message: Message | None = None

    def greet(self) -> None:
        """HELLO, and AUTH where it is asked for."""
        self._asked("HELLO", self.host.build_hello())
        self._said("OK", self.target.answer_handshake(self._next()))
        if self.target.agreement.proof_wanted:
            self._asked("AUTH", self.host.build_proof())
            try:
                self._said("OK", self.target.answer_handshake(self._next()))
            except AuthenticationError as error:
                self._said("ERROR, fatal", self.target.error(create_failure(error), fatal=True))

    def ask(self, kind: FrameKind, payload: bytes = b"", flags: int = 0) -> None:
        """The host says something."""
        steps = (
            {BEGIN: " begin", PART: " part", END: " end"}
            if kind is FrameKind.MODEL
            else {1: ", clock"}
        )
        frames = self.host.ask(kind, (payload,) if payload else (), flags)
        self._asked(kind.name + steps.get(flags, ""), frames)

    def ok(self, payload: bytes = b"", flags: int = 0) -> None:
        """The target grants the oldest request that waits."""
        message = self._message or self._next()
        frames = self.target.answer((payload,) if payload else (), flags)
        self._message = message if flags == STARTED else None
        if frames:
            self._said("OK, started" if flags == STARTED else "OK", frames)

    def error(self, code: ErrorCode, text: str = "", fatal: bool = False) -> None:
        """The target refuses the oldest request that waits, or everything."""
        if not fatal and self._message is None:
            self._next()
        self._message = None
        name = f"ERROR {code.name}" + (", fatal" if fatal else "")
        self._said(name, self.target.error(ErrorPayload(code, text), fatal))

    def log(self, level: int, text: str) -> None:
        """The target forwards a line of its log."""
        self._said("LOG", self.target.log(pack_log(level, text)))

    def infer(self, inputs: bytes = b"12345678", outputs: bytes = b"outputs!") -> None:
        """DATA, PROCESS and OUTPUT, one after another."""
        self.ask(FrameKind.DATA, inputs)
        self.ok()
        self.process()
        self.ask(FrameKind.OUTPUT)
        self.ok(outputs)

    def process(self) -> None:
        """PROCESS, and its two answers."""
        self.ask(FrameKind.PROCESS)
        self.ok(flags=STARTED)
        self.ok(STAMPS)

    def upload(self, had: int = 0, part: int = 64) -> None:
        """Bring the model, but for what the target has."""
        self.ask(FrameKind.MODEL, OFFER, BEGIN)
        self.ok(pack_count(had))
        for at in range(had, len(MODEL), part):
            self.ask(FrameKind.MODEL, pack_count(at) + MODEL[at : at + part], PART)
            self.ok()
        self.ask(FrameKind.MODEL, b"", END)
        self.ok(LoadedModel(5000, {}, {}).pack())

    def ready(self) -> None:
        """Greet, and say that the model is there already."""
        self.greet()
        self.upload(had=len(MODEL))

    def turn_away(self) -> None:
        """HELLO, and a target that has no time."""
        self._asked("HELLO", self.host.build_hello())
        self._next()
        self.error(ErrorCode.BUSY, "try again later", fatal=True)

    def foreign_hello(self, oldest: int, newest: int) -> None:
        """A HELLO of other versions, which this code cannot speak."""
        _, payload = self.host.build_hello()
        payload = bytes([oldest, newest]) + bytes(payload[2:])
        self._asked(
            "HELLO",
            [pack_header(FrameKind.HELLO, 0, 0x0102, len(payload), CRC32.of([payload])), payload],
        )
        try:
            self.target.answer_handshake(self._next())
        except RemoteProtocolError as error:
            self._said("ERROR, fatal", self.target.error(create_failure(error), fatal=True))

    def _asked(self, what: str, frames: Sequence[bytes | memoryview]) -> None:
        data = b"".join(map(bytes, frames))
        self.lines.append((">", what, data))
        hear(self.target, data)

    def _said(self, what: str, frames: Sequence[bytes | memoryview]) -> None:
        data = b"".join(map(bytes, frames))
        self.lines.append(("<", what, data))
        hear(self.host, data)
        try:
            while self.host.next_message() is not None and self.host.state.value != "closed":
                pass
        except RemoteProtocolError:
            raise AssertionError(f"the host does not take {what}") from None

    def _next(self) -> Message:
        message = self.target.next_message()
        assert message is not None, "the host has asked nothing"
        return message


def hear(conversation: HostConversation | TargetConversation, data: bytes) -> None:
    """Let a conversation hear bytes."""
    view = memoryview(data)
    while len(view):
        wanted = conversation.wanted()
        if not len(wanted):
            # only makes room for a long payload
            assert conversation.next_message() is None, "a message was lost"
            continue
        count = min(len(wanted), len(view))
        wanted[:count] = view[:count]
        conversation.received(count)
        view = view[count:]


@dataclass(frozen=True)
class Scene:
    """A conversation to be written: what it shows, who speaks, and what they say."""

    name: str
    about: str
    script: Callable[[Recorder], None]
    offers: Limits = field(default_factory=lambda: Limits(extensions=0))
    takes: Limits = SERVER
    token: bytes | None = None
    host_token: bytes | None = None

    def record(self) -> list[tuple[str, str, bytes]]:
        """Let both sides speak; gives direction, name and bytes of each frame."""
        recorder = Recorder(self)
        self.script(recorder)
        return recorder.lines


def _refused_model(talk: Recorder) -> None:
    talk.greet()
    talk.ask(FrameKind.MODEL, ModelOffer(1 << 50, bytes(32), DESCRIPTION).pack(), BEGIN)
    talk.error(ErrorCode.NO_SPACE, "the model has 1,125,899,906,842,624 bytes")
    talk.ask(FrameKind.MODEL, ModelOffer(100, bytes(32), DESCRIPTION).pack(), BEGIN)
    talk.ok(pack_count(0))
    talk.ask(FrameKind.MODEL, pack_count(0) + MODEL, PART)
    talk.ok()
    talk.ask(FrameKind.MODEL, b"", END)
    talk.error(ErrorCode.DAMAGED)
    talk.upload()


def _inference(talk: Recorder) -> None:
    talk.ready()
    talk.infer()
    talk.process()  # the same inputs once more
    talk.ask(FrameKind.OUTPUT)
    talk.ok(b"outputs!")
    talk.infer(b"87654321", b"others!!")


def _ahead(talk: Recorder, fails: bool = False) -> None:
    talk.ready()
    for number in range(3):
        talk.ask(FrameKind.DATA, bytes([number]) * 8)
        talk.ask(FrameKind.PROCESS)
        talk.ask(FrameKind.OUTPUT)
    for number in range(3):
        talk.ok()
        talk.ok(flags=STARTED)
        if fails and number == 1:
            talk.error(ErrorCode.RUNTIME, "RuntimeError: no luck")
            talk.error(ErrorCode.SKIPPED)
        else:
            talk.ok(STAMPS)
            talk.ok(bytes([number]) * 4)


def _whole(talk: Recorder, fails: bool = False) -> None:
    talk.ready()
    for number in range(3):
        talk.ask(FrameKind.INFER, bytes([number]) * 8)
    for number in range(3):
        if fails and number == 1:
            talk.error(ErrorCode.RUNTIME, "RuntimeError: no luck")
        else:
            talk.ok(STAMPS + bytes([number]) * 4)
    if fails:
        talk.ask(FrameKind.INFER, b"1234567")
        talk.error(ErrorCode.TENSORS, "the tensors take 8 bytes, 7 came")


def _runtime_fails(talk: Recorder) -> None:
    talk.ready()
    talk.ask(FrameKind.DATA, b"1234567")
    talk.error(ErrorCode.TENSORS, "the tensors take 8 bytes, 7 came")
    talk.ask(FrameKind.DATA, b"12345678")
    talk.ok()
    talk.ask(FrameKind.PROCESS)
    talk.ok(flags=STARTED)
    talk.error(ErrorCode.RUNTIME, "RuntimeError: no luck")
    talk.infer()
    talk.ask(FrameKind.PROCESS)
    talk.ok(flags=STARTED)
    talk.error(ErrorCode.DIED, "it was ended by SIGKILL", fatal=True)


def _stats(
    talk: Recorder, counter: Counter = Counter.WALL, rate: int = 1_000_000_000, rows: bytes = ROWS
) -> None:
    talk.ready()
    talk.infer()
    talk.ask(FrameKind.STATS, b"", int(FrameFlag.CLOCK))
    talk.ok(Stats(counter, rate, 5000, 5010, 1, 5000).pack())
    talk.ask(FrameKind.STATS)
    talk.ok(Stats(counter, rate, 6000, 6020, 1, 5000, rows).pack())


def _log(talk: Recorder) -> None:
    talk.ready()
    talk.ask(FrameKind.DATA, b"12345678")
    talk.log(20, "inputs have come")
    talk.ok()
    talk.ask(FrameKind.PROCESS)
    talk.ok(flags=STARTED)
    talk.log(30, "it is getting warm: 80 °C")
    talk.ok(STAMPS)


def _checked(talk: Recorder) -> None:
    talk.ready()
    talk.infer(bytes(n * n % 251 for n in range(8200)), bytes(range(200)))


def _board(talk: Recorder) -> None:
    talk.greet()
    talk.ask(FrameKind.MODEL, OFFER, BEGIN)
    talk.ok(pack_count(0))
    for at in range(0, 100, 64):
        talk.ask(FrameKind.MODEL, pack_count(at) + MODEL[at : at + 64], PART)
        talk.ok()
    talk.ask(FrameKind.MODEL, b"", END)
    talk.ok(pack_count(40))
    talk.infer(b"sixteen bytes in", b"out!")
    talk.ask(FrameKind.STATS)
    talk.ok(Stats(Counter.CYCLES, 100_000_000, 9000, 9040, 1, 40).pack())


_PIPELINED, _WITH_LOG, _WHOLE = Limits(extensions=1), Limits(extensions=2), Limits(extensions=5)

SCENES = (
    Scene(
        "handshake",
        "Both sides agree on all that the target has",
        Recorder.greet,
        Limits(extensions=7, checks=3),
    ),
    Scene("version", "The host speaks versions 2 to 3 only", lambda talk: talk.foreign_hello(2, 3)),
    Scene("busy", "Another client is being served", Recorder.turn_away),
    Scene(
        "auth", "Both prove that they know the token", Recorder.greet, token=TOKEN, host_token=TOKEN
    ),
    Scene(
        "auth-refused",
        "The host's token is another",
        Recorder.greet,
        token=TOKEN,
        host_token=STRANGE_TOKEN,
    ),
    Scene("model", "A model of 100 bytes in two parts", lambda talk: (talk.greet(), talk.upload())),
    Scene(
        "model-resumed",
        "The target has 64 of the 100 bytes already",
        lambda talk: (talk.greet(), talk.upload(64)),
    ),
    Scene("model-refused", "Too large, then damaged, then right", _refused_model),
    Scene("inference", "One by one; the second run has the same inputs", _inference),
    Scene("pipelined", "Three inferences sent without waiting", _ahead, _PIPELINED),
    Scene(
        "pipelined-failure",
        "The second of three fails; its OUTPUT is passed over, the third is served",
        lambda talk: _ahead(talk, fails=True),
        _PIPELINED,
    ),
    Scene("infer", "The same in one request each", _whole, _WHOLE),
    Scene(
        "infer-failure",
        "The second of three fails; then inputs that do not fit",
        lambda talk: _whole(talk, fails=True),
        _WHOLE,
    ),
    Scene(
        "runtime-fails", "Wrong inputs, a runtime that raises, and one that dies", _runtime_fails
    ),
    Scene("stats", "The clock alone, then rows as well", _stats),
    Scene(
        "stats-instructions",
        "A target that counts instructions, which are no time",
        lambda talk: _stats(talk, Counter.INSTRUCTIONS, 0, b""),
    ),
    Scene("log", "Lines of the target's log between answers", _log, _WITH_LOG),
    Scene("crc32", "Inputs of 8,200 bytes under crc32", _checked),
    Scene(
        "xxh3",
        "Inputs of 8,200 bytes under xxh3",
        _checked,
        Limits(extensions=0, checks=XXH3.bit | CRC32.bit),
    ),
    Scene(
        "microcontroller",
        "A small target that counts cycles",
        _board,
        Limits(extensions=7, checks=3),
        BOARD,
    ),
)


def serial_line() -> list[tuple[str, str, bytes]]:
    """The handshake on a serial line with packets of 20 bytes, and noise."""
    session = 0x2A
    lines = [
        (">", "OPEN", encode(PacketType.OPEN, session, 0)),
        ("<", "OPENED", encode(PacketType.OPENED, session, 0)),
    ]
    numbers = {">": 0, "<": 0}
    for direction, what, data in SCENES[0].record():
        for at in range(0, len(data), 20):
            content = data[at : at + 20]
            name = f"BYTES {numbers[direction]}: {what} {at} to {at + len(content)}"
            lines.append(
                (direction, name, encode(PacketType.BYTES, session, numbers[direction], content))
            )
            numbers[direction] += 1
        lines.append((direction, "noise", bytes.fromhex("6e010a00ff03ff8002")))
    return [*lines, (">", "CLOSE", encode(PacketType.CLOSE, session, 0))]


def text_of(
    about: str, lines: Sequence[tuple[str, str, bytes]], framed: bool = True, token: bytes = b""
) -> str:
    """Write a conversation as text: ``>`` what the host says, ``<`` what the target says, in
    hexadecimal digits.
    """
    found = [f"# {about}."]
    if token:
        found.append(f"# token: {token.decode()}")
    for direction, what, data in lines:
        first, rest = (data[:HEADER_SIZE], data[HEADER_SIZE:]) if framed else (data, b"")
        found += ["", f"# {what}", f"{direction} {first.hex()}"]
        found += [f"  {line}" for line in textwrap.wrap(rest.hex(), 96)]
    return "\n".join(found) + "\n"


def contents() -> dict[Path, str]:
    """Return every file as it should be."""
    found = {}
    for scene in SCENES:
        found[FOLDER / f"{scene.name}.txt"] = text_of(
            scene.about, scene.record(), token=scene.host_token or b""
        )
    found[FOLDER / "serial.txt"] = text_of(
        "The handshake on a serial line, with noise", serial_line(), framed=False
    )
    return found


def main() -> int:
    """Write all files; those that nothing writes any more are removed."""
    found = contents()
    for path in {*FOLDER.glob("*.txt")} - {*found}:
        path.unlink()
        print(f"{path.name} removed")
    for path, text in found.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"{path.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
