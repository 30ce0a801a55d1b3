"""The host's side of UDP."""

from __future__ import annotations

import socket
import struct

import pytest

from nnpipe.protocols.channels.emulator import UDPPort

BEGIN, BYTES = 1, 2


def test_a_board_that_sends_without_end_is_not_kept_in_memory() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as board:
        board.bind(("127.0.0.1", 0))
        port = UDPPort("127.0.0.1", board.getsockname()[1], 0.3)
        try:
            port.write(b"")
            begin, host = board.recvfrom(100)
            assert begin[3] == BEGIN
            board.sendto(begin, host)
            port.read()
            for number in range(80):
                board.sendto(
                    begin[:3]
                    + bytes([BYTES])
                    + begin[4:6]
                    + struct.pack("<HH", number, 0)
                    + bytes(1400),
                    host,
                )
            with pytest.raises(OSError, match="timeout of a write"):
                port.write(bytes(4 * 1462))
            assert (1 << 16) <= len(port.read(1 << 20)) < (1 << 16) + 1400
        finally:
            port.close()
