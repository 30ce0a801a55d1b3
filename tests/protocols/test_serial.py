from __future__ import annotations

import os
import random
import select
import sys
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, serves

from nnpipe.core.errors import NNPipeError, TargetError, TransportError
from nnpipe.core.runtime_protocol import Listener, RemoteOptions, RuntimeProtocol
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.packets import (
    PacketReader,
    PacketType,
    decode,
    encode,
    stuff,
    unstuff,
)
from nnpipe.protocols.serial import SerialProtocol
from nnpipe.testing.fakes import FakeRuntime, compute_expected, write_fake_model
from nnpipe.testing.protocol import (
    IO,
    RuntimeProtocolContract,
    assert_equal_outputs,
    create_batch,
    serve_in_thread,
)

serial = pytest.importorskip("serial", reason="pySerial is not installed")


class Cable:
    """Two pseudo-terminals and a thread that carries bytes between them, noise included."""

    def __init__(self) -> None:
        ends = [os.openpty(), os.openpty()]
        for _, slave in ends:
            tty.setraw(slave)
        self._masters = [master for master, _ in ends]
        # held open, or a port that closes would hang up the line
        self._slaves = [slave for _, slave in ends]
        self.host, self.target = (os.ttyname(slave) for slave in self._slaves)
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        while True:
            for ready in select.select([*self._masters, self._stop], [], [])[0]:
                if ready == self._stop:
                    return
                other = self._masters[1 - self._masters.index(ready)]
                os.write(other, self.spoil(os.read(ready, 512)))

    def noise(self, data: bytes) -> None:
        for master in self._masters:
            os.write(master, data)

    def close(self) -> None:
        os.write(self._stopping, b"x")
        self._thread.join()
        for descriptor in (*self._masters, *self._slaves, self._stop, self._stopping):
            os.close(descriptor)


@pytest.fixture
def cable() -> Iterator[Cable]:
    cable = Cable()
    yield cable
    cable.close()


class TestSerialProtocol(RuntimeProtocolContract):
    timeout = 1.0

    @pytest.fixture
    def protocol(self, cable: Cable) -> SerialProtocol:
        return SerialProtocol(
            serial_port=cable.target, baud_rate=230_400, packet_size=1000, timeout=self.timeout
        )

    @pytest.fixture
    def serving(
        self, protocol: SerialProtocol, cable: Cable
    ) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        host = SerialProtocol(serial_port=cable.host, packet_size=300, timeout=self.timeout)
        with protocol.listen() as listener:
            yield listener, host


def test_a_port_that_does_not_exist_is_named() -> None:
    with pytest.raises(TransportError, match="/dev/no-such-port"):
        SerialProtocol(serial_port="/dev/no-such-port").connect()


def test_noise_before_and_between_does_no_harm(cable: Cable, tmp_path: Path) -> None:
    model = write_fake_model(tmp_path, IO)
    chance = random.Random(1)
    host = SerialProtocol(serial_port=cable.host, timeout=3.0)
    with SerialProtocol(serial_port=cable.target, timeout=3.0).listen() as listener:
        with serve_in_thread(listener, FakeRuntime()):
            cable.noise(chance.randbytes(3000))
            for turn in range(3):
                with open_session(host, model) as session:
                    for seed in range(5):
                        cable.noise(chance.randbytes(300))
                        batch = create_batch(seed=seed + turn)
                        assert_equal_outputs(session.infer(batch), compute_expected(IO, batch))


@pytest.mark.slow
def test_noise_in_the_middle_never_gives_a_wrong_result(cable: Cable, tmp_path: Path) -> None:
    model = write_fake_model(tmp_path, IO, padding=2000)
    chance = random.Random(2)
    host = SerialProtocol(serial_port=cable.host, packet_size=64, timeout=0.5)

    def flip(data: bytes) -> bytes:
        if chance.random() > 0.02:
            return data
        spoilt = bytearray(data)
        spoilt[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return bytes(spoilt)

    right = wrong = 0
    # an answer that is lost is waited for so long
    patient = RemoteOptions(load_timeout=5.0, run_timeout=5.0)
    with SerialProtocol(serial_port=cable.target, packet_size=64, timeout=0.5).listen() as listener:
        with serve_in_thread(listener, FakeRuntime()):
            cable.spoil = flip
            for turn in range(12):
                try:
                    with open_session(host, model, patient) as session:
                        for seed in range(3):
                            batch = create_batch(seed=seed + turn)
                            assert_equal_outputs(session.infer(batch), compute_expected(IO, batch))
                            right += 1
                except NNPipeError:
                    wrong += 1
            cable.spoil = lambda data: data
            with open_session(host, model) as session:
                assert_equal_outputs(
                    session.infer(create_batch()), compute_expected(IO, create_batch())
                )
    assert wrong > 0
    assert right > 0


def test_a_host_that_vanished_makes_room_for_the_next(cable: Cable, tmp_path: Path) -> None:
    model = write_fake_model(tmp_path, IO)
    host = SerialProtocol(serial_port=cable.host, timeout=3.0)
    with SerialProtocol(serial_port=cable.target, timeout=3.0).listen() as listener:
        with serve_in_thread(listener, FakeRuntime()):
            vanished = open_session(host, model)
            vanished._connection.channel._line.close()  # without a word of farewell
            with open_session(host, model) as session:
                assert_equal_outputs(
                    session.infer(create_batch()), compute_expected(IO, create_batch())
                )


@pytest.mark.parametrize("isolation", ["--isolate", "--no-isolate"])
def test_a_server_process_serves_one_client_after_another(
    cable: Cable, tmp_path: Path, isolation: str
) -> None:
    where = ("nnpipe.protocols.serial.SerialProtocol", "--serial-port", cable.target)
    host = SerialProtocol(serial_port=cable.host, timeout=5.0)
    with Server(isolation, protocol=where, timeout=3.0) as server:
        for _ in range(2):
            serves(host, tmp_path)
        with pytest.raises(TargetError, match="told to fail"):
            open_session(host, write_fake_model(tmp_path, IO, fault="raise", at="load"))
        serves(host, tmp_path)
        assert server.stop() == 0
        # the runtime's own, told once
        assert "Traceback" not in server.log.replace("Traceback", "", 1), server.log


# -- packets
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 253, 254, 255, 256, 508, 509, 1000])
def test_stuffing_takes_out_zeros_and_gives_them_back(size: int) -> None:
    chance = random.Random(size)
    for data in (
        bytes(size),
        bytes([7]) * size,
        chance.randbytes(size),
        (bytes(253) + b"x") * (size // 254),
    ):
        stuffed = stuff(data)
        assert 0 not in stuffed
        assert len(stuffed) <= len(data) + len(data) // 254 + 1
        assert unstuff(stuffed) == data


def test_stuffing_is_that_of_the_paper() -> None:
    assert stuff(b"\x00") == b"\x01\x01"
    assert stuff(b"\x11\x22\x00\x33") == b"\x03\x11\x22\x02\x33"
    assert stuff(bytes(range(1, 255))) == b"\xff" + bytes(range(1, 255)) + b"\x01"


def test_a_packet_survives_and_a_flipped_bit_does_not() -> None:
    encoded = encode(PacketType.BYTES, 3, 65_535, b"con\0tent")
    packet = decode(encoded.strip(b"\0"))
    assert packet == (PacketType.BYTES, 3, 65_535, b"con\0tent")
    for bit in range(8, 8 * (len(encoded) - 1)):
        spoilt = bytearray(encoded)
        spoilt[bit // 8] ^= 1 << bit % 8
        assert all(found != packet for found in PacketReader(100).feed(bytes(spoilt)))


def test_a_reader_finds_packets_after_any_noise_and_keeps_little_of_it() -> None:
    chance = random.Random(0)
    reader = PacketReader(64)
    for _ in range(200):
        assert list(reader.feed(chance.randbytes(100))) == []
        assert len(reader._open) <= 200
        assert [
            packet.content for packet in reader.feed(encode(PacketType.BYTES, 0, 0, b"here"))
        ] == [b"here"]
