"""The packets in C are those of Python: what is sent, what is found in noise, and when a session
is over.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess

import pytest

from nnpipe.protocols.conversation.packets import Packet, PacketType, decode, encode
from nnpipe.protocols.target_c import FOLDER

CONTENT, OPENED, OVER = 1, 2, 3
SESSION = 7


class Line:
    """A line in C, and what it sends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._state, self._sent = (
            library,
            ctypes.create_string_buffer(4096),
            bytearray(),
        )
        self._write = ctypes.CFUNCTYPE(None, ctypes.c_uint8)(self._sent.append)
        library.nnpipe_packets_begin(self._state, self._write)

    def feed(self, data: bytes) -> tuple[bytes, list[int]]:
        """Return the content that came, and the other events."""
        content, events, byte = bytearray(), [], ctypes.c_uint8()
        for each in data:
            event = self._library.nnpipe_packet_byte(
                self._state, ctypes.c_uint8(each), ctypes.byref(byte)
            )
            if event == CONTENT:
                content.append(byte.value)
            elif event:
                events.append(event)
        return bytes(content), events

    def send(self, data: bytes) -> None:
        self._library.nnpipe_packets_send(self._state, data, len(data))
        self._library.nnpipe_packets_flush(self._state)

    def sent(self) -> list[Packet | None]:
        found = [decode(bytes(piece)) for piece in bytes(self._sent).split(b"\0") if piece]
        self._sent.clear()
        return found


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("c") / "packets.so"
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    sources = [str(FOLDER / name) for name in ("nnpipe_packets.c", "nnpipe_frames.c")]
    done = subprocess.run(
        [compiler, *strict, *sources, "-o", str(made)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(made))


@pytest.fixture
def line(library: ctypes.CDLL) -> Line:
    found = Line(library)
    assert found.feed(encode(PacketType.OPEN, SESSION, 0)) == (b"", [OPENED])
    assert found.sent() == [Packet(PacketType.OPENED, SESSION, 0, b"")]
    return found


def contents() -> list[bytes]:
    draw = random.Random(0)
    sizes = (1, 2, 253, 254, 255, 508, 1000, 4096)
    return [
        bytes(draw.choice((0, 1, 255, draw.randrange(256))) for _ in range(n)) for n in sizes
    ] + [bytes(draw.randrange(1, 256) for _ in range(n)) for n in sizes]


def test_both_sides_read_what_the_other_sends(line: Line) -> None:
    for number, content in enumerate(contents()):
        assert line.feed(encode(PacketType.BYTES, SESSION, number, content)) == (content, [])
        line.send(content)
        assert line.sent() == [Packet(PacketType.BYTES, SESSION, number, content)]


def test_the_last_byte_is_handed_on_when_the_packet_is_whole(line: Line) -> None:
    packet = encode(PacketType.BYTES, SESSION, 0, b"request")
    assert line.feed(packet[:-1]) == (b"reques", [])
    assert line.feed(packet[-1:]) == (b"t", [])


def test_long_answers_are_divided(line: Line) -> None:
    line.send(bytes(5000))
    assert [(packet.sequence, len(packet.content)) for packet in line.sent() if packet] == [
        (0, 4096),
        (1, 904),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_noise_between_packets_is_passed_over(line: Line, seed: int) -> None:
    noise = random.Random(seed).randbytes(5000)
    assert line.feed(noise) == (b"", [])
    assert line.feed(encode(PacketType.BYTES, SESSION, 0, b"after")) == (b"after", [])


def test_a_packet_that_is_missing_or_damaged_ends_the_session_and_a_new_one_begins(
    line: Line,
) -> None:
    assert line.feed(encode(PacketType.BYTES, SESSION, 1, b"the second")) == (b"", [OVER])
    assert line.sent() == [Packet(PacketType.CLOSE, SESSION, 0, b"")]
    assert line.feed(encode(PacketType.BYTES, SESSION, 0, b"nobody listens")) == (b"", [])
    assert line.feed(encode(PacketType.OPEN, SESSION + 1, 0)) == (b"", [OPENED])
    damaged = bytearray(encode(PacketType.BYTES, SESSION + 1, 0, b"damaged"))
    damaged[8] ^= 1
    assert line.feed(bytes(damaged))[1] == [OVER]


def test_an_open_that_is_repeated_changes_nothing(line: Line) -> None:
    assert line.feed(encode(PacketType.OPEN, SESSION, 0)) == (b"", [])
    assert line.sent() == [Packet(PacketType.OPENED, SESSION, 0, b"")]
    line.feed(encode(PacketType.BYTES, SESSION, 0, b"x"))
    assert line.feed(encode(PacketType.OPEN, SESSION, 0)) == (b"", [OPENED])


def test_other_sessions_are_not_heard_and_close_ends_one(line: Line) -> None:
    assert line.feed(encode(PacketType.BYTES, SESSION + 1, 0, b"left over")) == (b"", [])
    assert line.feed(encode(PacketType.CLOSE, SESSION, 0)) == (b"", [OVER])
    assert line.sent() == []
