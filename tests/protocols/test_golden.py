"""The golden conversations, replayed from either side and compared byte for byte."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from golden import FILES, FOLDER, FRAMED, Frame, feed, host_of, read, target_of

from nnpipe.core.errors import AuthenticationError, NNPipeError, RemoteProtocolError
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import FrameFlag, FrameKind
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.packets import PacketReader, encode
from nnpipe.protocols.conversation.payloads import (
    ErrorPayload,
    LoadedModel,
    ModelOffer,
    Stats,
    pack_log,
    pack_stamps,
    unpack_log,
    unpack_stamps,
)
from nnpipe.protocols.conversation.rules import STAMPS_SIZE, ConversationState
from nnpipe.protocols.conversation.target import TargetConversation

FATAL, STARTED = int(FrameFlag.FATAL), int(FrameFlag.STARTED)
THEIR_HOST = {"version.txt"}  # a host that is not of this version


def framed() -> list[object]:
    return [pytest.param(path, id=path.stem) for path in FRAMED]


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", FOLDER / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["record"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_files_are_what_the_code_says(recorder: ModuleType) -> None:
    found = recorder.contents()
    assert {path.name for path in FILES} == {path.name for path in found}
    for path, text in found.items():
        assert path.read_text("utf-8") == text, (
            "if that is meant: python tests/data/conversations/record.py"
        )


def test_every_kind_every_step_and_every_check_is_shown() -> None:
    seen = {(frame.kind, frame.flags) for path in FRAMED for frame in read(path)}
    assert {kind for kind, _ in seen} == {*map(int, FrameKind)}
    assert {flags for kind, flags in seen if kind == FrameKind.MODEL} == {0, 1, 2}
    chosen = {read(path)[1].payload[1] for path in FRAMED if read(path)[1].kind == FrameKind.OK}
    assert chosen == {1, 2}


# -- from either side
# -------------------------------------------------------------------------------


def host_says(host: HostConversation, frame: Frame) -> bytes:
    """What this code's host would say in the place of the file's."""
    if frame.kind == FrameKind.HELLO:
        frames = host.build_hello()
    elif frame.kind == FrameKind.AUTH:
        frames = host.build_proof()
    else:
        frames = host.ask(
            FrameKind(frame.kind), (frame.payload,) if frame.payload else (), frame.flags
        )
    return b"".join(map(bytes, frames))


@pytest.mark.parametrize("path", framed())
def test_a_host_says_and_takes_the_same(path: Path) -> None:
    if path.name in THEIR_HOST:
        return
    frames = read(path)
    host = host_of(path, frames)
    for frame in frames:
        if frame.direction == ">":
            assert host_says(host, frame) == frame.data
            continue
        feed(host, frame.data)
        message = host.next_message()
        assert message is not None
        assert (message.kind, message.flags, bytes(message.payload)) == (
            frame.kind,
            frame.flags,
            frame.payload,
        )
        if frame.flags & FATAL:
            assert host.state is ConversationState.CLOSED


class Replay:
    """A target that answers as the file has it, by its own hand."""

    def __init__(self, frames: list[Frame]) -> None:
        self.target = target_of(frames)
        self._message: Message | None = None

    def says(self, frame: Frame) -> bytes:
        """What this code's target would say in the place of the file's."""
        target = self.target
        if frame.kind == FrameKind.LOG:
            level, text = unpack_log(frame.payload)
            assert pack_log(level, text) == frame.payload
            return joined(target.log(frame.payload))
        if frame.kind == FrameKind.ERROR and frame.flags & FATAL:
            message = target.next_message() if self._message is None else None
            if message is not None and message.kind is FrameKind.AUTH:
                with pytest.raises(AuthenticationError):
                    target.answer_handshake(message)
            return joined(target.error(ErrorPayload.unpack(frame.payload), fatal=True))
        message = self._message or target.next_message()
        assert message is not None
        self._message = None
        if frame.kind == FrameKind.ERROR:
            return joined(target.error(ErrorPayload.unpack(frame.payload)))
        if message.kind in (FrameKind.HELLO, FrameKind.AUTH):
            return joined(target.answer_handshake(message))
        if message.kind is FrameKind.PROCESS and frame.flags == STARTED:
            self._message = message
        return joined(target.answer((frame.payload,) if frame.payload else (), frame.flags))


def joined(frames: list[bytes | memoryview]) -> bytes:
    return b"".join(map(bytes, frames))


@pytest.mark.parametrize("path", framed())
def test_a_target_says_and_takes_the_same(path: Path) -> None:
    frames = read(path)
    replay = Replay(frames)
    for frame in frames:
        if frame.direction == ">":
            feed(replay.target, frame.data)
        else:
            assert replay.says(frame) == frame.data


@pytest.mark.parametrize("path", framed())
def test_payloads_are_read_and_written_the_same(path: Path) -> None:
    frames = read(path)
    asked = {frame.number: frame for frame in frames if frame.direction == ">"}
    for frame in frames:
        about = asked.get(frame.number)
        if frame.kind == FrameKind.ERROR:
            assert ErrorPayload.unpack(frame.payload).pack() == frame.payload
        elif frame.kind == FrameKind.MODEL and frame.flags == FrameFlag.BEGIN:
            assert ModelOffer.unpack(frame.payload).pack() == frame.payload
        elif frame.kind == FrameKind.OK and about is not None:
            if about.kind == FrameKind.STATS:
                assert Stats.unpack(frame.payload).pack() == frame.payload
            elif about.kind in (FrameKind.PROCESS, FrameKind.INFER) and frame.payload:
                stamps = frame.payload[:STAMPS_SIZE]
                assert pack_stamps(*unpack_stamps(stamps)) == stamps
            elif (
                about.kind == FrameKind.MODEL
                and about.flags == FrameFlag.END
                and len(frame.payload) > 8
            ):
                assert LoadedModel.unpack(frame.payload).pack() == frame.payload


# -- spoilt
# -----------------------------------------------------------------------------------------


def until(path: Path, frames: list[Frame], last: int) -> HostConversation | TargetConversation:
    """The side that is to hear frame number ``last``, having heard and said all before it."""
    if frames[last].direction == "<":
        host = host_of(path, frames)
        for frame in frames[:last]:
            if frame.direction == ">":
                host_says(host, frame)
            else:
                feed(host, frame.data)
                host.next_message()
        return host
    replay = Replay(frames)
    for frame in frames[:last]:
        if frame.direction == ">":
            feed(replay.target, frame.data)
        else:
            replay.says(frame)
    return replay.target


def drained(conversation: HostConversation | TargetConversation) -> Iterator[bytes]:
    """The payloads of all that has come; a target grants everything."""
    while (message := conversation.next_message()) is not None:
        yield bytes(message.payload)
        if isinstance(conversation, TargetConversation):
            if message.kind in (FrameKind.HELLO, FrameKind.AUTH):
                conversation.answer_handshake(message)
                continue
            if message.kind is FrameKind.PROCESS:
                conversation.answer((), STARTED)
            conversation.answer()


@pytest.mark.parametrize("path", framed())
def test_a_changed_byte_is_never_taken_for_the_same(path: Path) -> None:
    """Every byte of every header and of short payloads, and some of long ones."""
    chance = random.Random(path.name)
    frames = read(path)
    for last, frame in enumerate(frames):
        if frame.direction == "<" and path.name in THEIR_HOST:
            continue
        for at in range(len(frame.data)):
            if at > 200 and at % 97:
                continue
            spoilt = bytearray(frame.data)
            spoilt[at] ^= chance.randint(1, 255)
            side = until(path, frames, last)
            with pytest.raises(RemoteProtocolError):  # noqa: PT012
                feed(side, bytes(spoilt))
                for _ in drained(side):
                    pass
            assert side.state is ConversationState.CLOSED


@pytest.mark.parametrize("path", framed())
@pytest.mark.parametrize("what", ["dropped", "doubled", "swapped"])
def test_a_request_that_is_lost_doubled_or_late_is_never_taken_for_the_same(
    path: Path, what: str
) -> None:
    frames = read(path)
    asked = [frame for frame in frames if frame.direction == ">"]
    for number, frame in enumerate(asked):
        stream = list(asked)
        if what == "dropped":
            stream.remove(frame)
        elif what == "doubled":
            stream.insert(number, frame)
        elif number + 1 < len(stream):
            stream[number : number + 2] = stream[number + 1], frame
        else:
            continue
        target = target_of(frames)
        heard = []
        try:
            for each in stream:
                feed(target, each.data)
                heard += list(drained(target))
        except NNPipeError:
            assert target.state is ConversationState.CLOSED
        else:
            assert what == "dropped", "only what came last can be missing without notice"
            assert frame is asked[-1]
            assert len(heard) < len(asked)


# -- the serial line
# --------------------------------------------------------------------------------


def test_packets_are_read_and_written_the_same() -> None:
    frames = read(FOLDER / "serial.txt")
    handshake = read(FOLDER / "handshake.txt")
    for direction in "<>":
        said = b"".join(frame.data for frame in frames if frame.direction == direction)
        packets = list(PacketReader(5000).feed(said))
        written = [encode(*packet) for packet in packets]
        assert [
            frame.data for frame in frames if frame.direction == direction and not frame.data[0]
        ] == written
        content = b"".join(packet.content for packet in packets)
        assert content == b"".join(
            frame.data for frame in handshake if frame.direction == direction
        )


def test_a_changed_byte_on_the_serial_line_is_never_taken_for_the_same() -> None:
    for frame in read(FOLDER / "serial.txt"):
        (right,) = list(PacketReader(5000).feed(frame.data)) or [None]
        for at in range(1, len(frame.data) - 1):
            for change in (1, 128, frame.data[at]):
                spoilt = bytearray(frame.data)
                spoilt[at] ^= change
                assert right is None or right not in PacketReader(5000).feed(bytes(spoilt))
