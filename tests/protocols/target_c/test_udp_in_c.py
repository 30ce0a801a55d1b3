"""The firmware's side of UDP: datagrams in order, lost ones again, ARP, and whatever else comes
is dropped.
"""

from __future__ import annotations

import random
import shutil
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from udp_board import (
    AGAIN,
    BEGIN,
    BOARD,
    BOARD_MAC,
    BYTES,
    HOST,
    HOST_MAC,
    Datagram,
    UDPBoard,
    build,
    read_frame,
)

from nnpipe.protocols.channels.emulator import UDPPort

LINE = 0x1234
QUESTION = (
    b"\xff" * 6 + HOST_MAC + bytes.fromhex("0806 0001 0800 06 04 0001") + HOST_MAC + HOST + bytes(6)
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("c"))


class Wire:
    """A board, and frames on their way to it and from it."""

    def __init__(self, library: Path) -> None:
        self.to: deque[bytes] = deque()
        self.sent: list[bytes] = []
        self.board = UDPBoard(
            library, lambda: self.to.popleft() if self.to else b"", self.sent.append
        )

    def hear(self, *frames: Datagram | bytes) -> bytes:
        """Hand frames to the board, and return the bytes of the line that came."""
        self.to += [frame.frame() if isinstance(frame, Datagram) else frame for frame in frames]
        return self.board.read()

    def said(self) -> list[Datagram]:
        found = [read_frame(frame) for frame in self.sent]
        self.sent.clear()
        return found


@pytest.fixture
def fresh(library: Path, tmp_path: Path) -> Wire:
    return Wire(Path(shutil.copy(library, tmp_path)))  # a copy has variables of its own


@pytest.fixture
def wire(fresh: Wire) -> Wire:
    assert fresh.hear(Datagram(BEGIN, LINE)) == b""
    assert fresh.said() == [Datagram(BEGIN, LINE)]
    return fresh


def some(number: int, content: bytes = b"content", taken: int = 0) -> Datagram:
    return Datagram(BYTES, LINE, number, taken, content)


def test_arp_is_answered_for_its_own_address_only(fresh: Wire) -> None:
    asked = QUESTION + BOARD
    for frame in (
        QUESTION + HOST,
        asked[:41],
        asked[:21] + b"\2" + asked[22:],
        asked[:14] + b"\1" + asked[15:],
    ):
        fresh.hear(frame.ljust(60, b"\0") if len(frame) == 42 else frame)
        assert not fresh.sent
    fresh.hear(asked.ljust(60, b"\0"))
    answer = HOST_MAC + BOARD_MAC + asked[12:21] + b"\2" + BOARD_MAC + BOARD + HOST_MAC + HOST
    assert fresh.sent == [answer.ljust(60, b"\0")]


@pytest.mark.parametrize("size", [1, 2, 17, 18, 1461, 1462])
def test_bytes_come_and_go(wire: Wire, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert wire.hear(some(0, content)) == content
    assert wire.said() == [some(0, b"", taken=1)]
    wire.board.write(content)
    assert wire.said() == [some(0, content, taken=1)]


def test_long_answers_wait_for_the_host(wire: Wire) -> None:
    wire.hear(some(0))
    wire.said()
    wire.to += [some(0, b"", taken=1).frame(), some(0, b"", taken=2).frame()]
    wire.board.write(bytes(3 * 1462))
    assert len(wire.to) == 2
    wire.board.write(bytes(1462 + 100))
    assert [(each.number, len(each.content)) for each in wire.said()] == [
        *((n, 1462) for n in range(4)),
        (4, 100),
    ]
    assert not wire.to


def test_datagrams_that_are_repeated_or_out_of_order_are_taken_once_and_in_order(
    wire: Wire,
) -> None:
    assert wire.hear(some(1, b"b")) == b""
    assert wire.said() == [some(0, b"", taken=0)]
    assert wire.hear(some(0, b"a"), some(0, b"a"), some(1, b"b"), some(3, b"d")) == b"ab"
    assert [each.taken for each in wire.said()][-1] == 2


def test_no_more_is_taken_than_there_is_room_for(wire: Wire) -> None:
    wire.hear(some(0))
    for number in range(3):
        wire.board.write(bytes([number]))
    wire.to += [some(n, bytes([n]), taken=0).frame() for n in range(1, 6)]
    wire.to.append(some(0, b"", taken=1).frame())
    wire.board.write(b"takes frames until the host has the first")
    assert wire.board.read() == bytes([1, 2, 3])
    assert wire.hear(some(4, b"\4", taken=2)) == b"\4"


def test_what_the_host_lacks_is_sent_again_when_it_asks(wire: Wire) -> None:
    wire.hear(some(0))
    wire.board.write(b"answer")
    assert wire.said()[-1] == some(0, b"answer", taken=1)
    wire.board.write(b"more")
    wire.said()
    again = Datagram(AGAIN, LINE)
    answers = [some(0, b"answer", taken=1), some(1, b"more", taken=1)]
    for taken in range(3):
        assert (
            wire.hear(
                some(0, b"", taken), again.but(taken=taken), again.but(taken=9), again.but(line=1)
            )
            == b""
        )
        assert wire.said() == answers[taken:] * 2
    assert wire.hear(some(0, taken=2)) == b""  # the host lacks only the acknowledgement
    assert wire.said() == [some(0, b"", taken=1)]


def test_a_new_line_begins_while_the_board_waits_for_a_host_that_has_gone(wire: Wire) -> None:
    wire.hear(some(0))
    wire.said()
    for _ in range(3):
        wire.board.write(b"answer")
    other = Datagram(BEGIN, 99, address=bytes([10, 0, 0, 3]), port=7)
    wire.to.append(other.frame())
    wire.board.write(b"the rest of it")
    assert wire.said() == [*(some(number, b"answer", taken=1) for number in range(3)), other]
    assert wire.hear(some(0), other.but(kind=BYTES, content=b"hello")) == b"hello"
    wire.board.write(b"welcome")
    assert wire.said()[-1] == other.but(kind=BYTES, taken=1, content=b"welcome")


def test_a_begin_that_is_repeated_changes_nothing(wire: Wire) -> None:
    assert wire.hear(some(0, b"a"), Datagram(BEGIN, LINE), some(1, b"b")) == b"ab"


def test_every_bit_that_is_wrong_is_seen(wire: Wire) -> None:
    right = some(0, b"odd").frame()
    for at in range(12, 14 + 20 + 8 + 13):
        for bit in range(8):
            assert wire.hear(right[:at] + bytes([right[at] ^ 1 << bit]) + right[at + 1 :]) == b""
    assert not wire.sent
    assert wire.hear(right) == b"odd"


def test_datagrams_that_are_not_meant_for_it_are_dropped(wire: Wire) -> None:
    good = some(0)
    frame = good.frame()
    strangers = [
        good.but(line=1),
        good.but(port=40001),
        good.but(address=bytes([192, 168, 7, 2])),
        good.but(kind=4),
        good.but(kind=0),
        *(frame[:size] for size in range(1, 59)),
        bytes(60),
        bytes(1514),
        b"\xff" * 1514,
    ]
    assert wire.hear(*strangers) == b""
    assert not wire.sent
    assert wire.hear(good) == good.content


@pytest.mark.parametrize("seed", range(3))
def test_the_line_goes_on_amid_random_frames(wire: Wire, seed: int) -> None:
    draw = random.Random(seed)
    came = bytearray()
    for number in range(50):
        right = some(number, bytes([number])).frame()
        noise = [draw.randbytes(draw.randrange(1, 1515)) for _ in range(3)]
        noise += [
            right[: draw.randrange(12, 53)] + draw.randbytes(draw.randrange(8, 100))
            for _ in range(3)
        ]
        came += wire.hear(*noise, right, *noise)
    assert came == bytes(range(50))


@pytest.mark.slow
def test_numbers_begin_again_after_65536(wire: Wire) -> None:
    for number in range(65_600):
        assert wire.hear(some(number & 0xFFFF, b"x", taken=number & 0xFFFF)) == b"x"
        wire.board.write(b"y")
        assert wire.said()[-1].number == number & 0xFFFF


class Network:
    """A board that sends back bytes with a bit changed, behind a network that loses, repeats and
    delays datagrams.
    """

    def __init__(self, library: Path, bad: Callable[[], float]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.01)
        self.port = self._socket.getsockname()[1]
        self._late: dict[bool, bytes] = {}  # by direction: datagrams that others overtake
        self._on_their_way: deque[bytes] = deque()
        self._bad = bad
        self._over = False
        self._board = UDPBoard(library, self._receive, self._send)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over:
            self._board.write(bytes(byte ^ 1 for byte in self._board.read()))

    def _spoilt(self, payload: bytes, from_board: bool) -> list[bytes]:
        luck = self._bad()
        if luck < 0.1:
            return []
        if luck < 0.2:
            return [payload, payload]
        if luck < 0.3 and from_board not in self._late:
            self._late[from_board] = payload
            return []
        late = self._late.pop(from_board, None)
        return [payload] if late is None else [payload, late]

    def _receive(self) -> bytes:
        if not self._on_their_way and not self._over:
            try:
                payload, (_, port) = self._socket.recvfrom(2000)
            except (TimeoutError, OSError):
                return b""
            for each in self._spoilt(payload, False):
                frame = Datagram(each[3], 0, port=port, content=each)
                self._on_their_way.append(_with_payload(frame, each))
        return self._on_their_way.popleft() if self._on_their_way else b""

    def _send(self, frame: bytes) -> None:
        found = read_frame(frame)
        for each in self._spoilt(found.payload(), True):
            self._socket.sendto(each, ("127.0.0.1", found.port))

    def close(self) -> None:
        self._over = True
        self._thread.join(5)
        self._socket.close()


def _with_payload(datagram: Datagram, payload: bytes) -> bytes:
    class Raw(Datagram):
        def payload(self) -> bytes:
            return payload

    return Raw(datagram.kind, datagram.line, port=datagram.port).frame()


@pytest.fixture
def network(library: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Network]:
    draw = random.Random(request.param)
    found = Network(
        Path(shutil.copy(library, tmp_path)),
        (lambda: 1.0) if request.param is None else draw.random,
    )
    yield found
    found.close()


def echoed(port: UDPPort, data: bytes) -> bytes:
    port.write(data)
    found = bytearray()
    for _ in range(2000):
        found += port.read(1 << 16)
        if len(found) >= len(data):
            break
    return bytes(byte ^ 1 for byte in found)


@pytest.mark.parametrize("network", [None, 1, 2], indirect=True)
def test_the_host_and_the_board_understand_each_other_over_a_bad_network(network: Network) -> None:
    port = UDPPort("127.0.0.1", network.port, 20.0)
    try:
        while not port._begun:
            port.write(b"")
        draw = random.Random(0)
        for size in (1, 1462, 1463, 6000):
            data = draw.randbytes(size)
            assert echoed(port, data) == data
    finally:
        port.close()
