from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nnpipe.core.errors import TransportError
from nnpipe.protocols.network import UnixProtocol
from nnpipe.testing.protocol import RuntimeProtocolContract


class TestUnixProtocol(RuntimeProtocolContract):
    @pytest.fixture
    def protocol(self, tmp_path: Path) -> UnixProtocol:
        return UnixProtocol(
            socket_path=tmp_path / "socket", packet_size=100_000, timeout=self.timeout
        )


def test_only_its_owner_can_reach_it(tmp_path: Path) -> None:
    protocol = UnixProtocol(socket_path=tmp_path / "socket")
    assert not protocol.is_exposed()
    with protocol.listen():
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600


def test_the_file_goes_with_the_listener(tmp_path: Path) -> None:
    with UnixProtocol(socket_path=tmp_path / "socket").listen():
        assert (tmp_path / "socket").exists()
    assert not (tmp_path / "socket").exists()


def test_the_file_of_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    protocol = UnixProtocol(socket_path=tmp_path / "socket")
    pid = os.fork()
    if pid == 0:
        protocol.listen()
        os._exit(0)
    os.waitpid(pid, 0)
    assert (tmp_path / "socket").exists()
    with protocol.listen(), protocol.connect():
        pass


def test_the_file_of_a_server_that_lives_is_left_alone(tmp_path: Path) -> None:
    protocol = UnixProtocol(socket_path=tmp_path / "socket")
    with protocol.listen():
        with pytest.raises(TransportError, match="socket"):
            protocol.listen()
        protocol.connect().close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "socket").write_text("precious")
    with pytest.raises(TransportError, match="socket"):
        UnixProtocol(socket_path=tmp_path / "socket").listen()
    assert (tmp_path / "socket").read_text() == "precious"
