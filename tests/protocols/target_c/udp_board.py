"""The firmware's side of UDP in this process, and the frames of Ethernet that lead to it, made
without it.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nnpipe.protocols.target_c import FOLDER

BEGIN, BYTES, AGAIN = 1, 2, 3
BOARD, PORT, HOST = bytes([192, 168, 7, 9]), 4321, bytes([192, 168, 7, 1])
BOARD_MAC, HOST_MAC = bytes([2, ord("n"), *BOARD]), b"\2host!"


def checksum(data: bytes) -> int:
    """Return the checksum of RFC 1071: 0 if the data include theirs."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    return ~(total % 0xFFFF or (0xFFFF if total else 0)) & 0xFFFF


@dataclass(frozen=True)
class Datagram:
    """A datagram to the board, or from it."""

    kind: int
    line: int
    number: int = 0
    taken: int = 0
    content: bytes = b""
    address: bytes = HOST  # of the host
    port: int = 40000

    def payload(self) -> bytes:
        return (
            struct.pack("<3sBHHH", b"nnp", self.kind, self.line, self.number, self.taken)
            + self.content
        )

    def frame(self) -> bytes:
        """Return a frame to the board."""
        payload = self.payload()
        udp = struct.pack(">HHHH", self.port, PORT, 8 + len(payload), 0)
        pseudo = self.address + BOARD + struct.pack(">HH", 17, len(udp) + len(payload))
        udp = udp[:6] + struct.pack(">H", checksum(pseudo + udp + payload) or 0xFFFF)
        ip = (
            struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(payload), 7, 0, 64, 17, 0)
            + self.address
            + BOARD
        )
        ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
        return (BOARD_MAC + HOST_MAC + b"\x08\0" + ip + udp + payload).ljust(60, b"\0")

    def but(self, **changes: object) -> Datagram:
        return replace(self, **changes)  # type: ignore[arg-type]


def read_frame(frame: bytes) -> Datagram:
    """Return the datagram in a frame from the board; every head and checksum must be right."""
    assert 60 <= len(frame) <= 1514
    assert frame[:14] == HOST_MAC + BOARD_MAC + b"\x08\0"
    length = struct.unpack_from(">H", frame, 16)[0]
    ip, udp, payload = frame[14:34], frame[34:42], frame[42 : 14 + length]
    assert (ip[0], ip[8] > 0, ip[9], ip[12:16]) == (0x45, True, 17, BOARD)
    assert checksum(ip) == 0
    source, port, size, check = struct.unpack(">HHHH", udp)
    assert (source, size) == (PORT, length - 20)
    assert check
    assert checksum(ip[12:] + struct.pack(">HH", 17, size) + udp + payload) == 0
    assert set(frame[14 + length :]) <= {0}
    magic, kind, line, number, taken = struct.unpack_from("<3sBHHH", payload)
    assert magic == b"nnp"
    return Datagram(kind, line, number, taken, payload[10:], ip[16:], port)


def build(folder: Path) -> Path:
    """Compile the firmware's part for this machine."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = folder / "udp.so"
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    firmware, here = FOLDER / "firmware", Path(__file__).parent
    command = [
        compiler,
        *strict,
        "-I",
        str(firmware),
        str(firmware / "udp.c"),
        str(here / "ethernet.c"),
    ]
    done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


class UDPBoard:
    """A board that has just been started.

    Parameters
    ----------
    library
        What :func:`build` has made; each board needs a copy of its own.
    receive
        Returns the next frame for the board, or nothing.
    send
        Takes frames from the board.
    """

    def __init__(
        self, library: Path, receive: Callable[[], bytes], send: Callable[[bytes], None]
    ) -> None:
        self._c = ctypes.CDLL(str(library))

        def place(words: int) -> int:
            frame = receive()
            ctypes.memmove(words, frame, len(frame))
            return len(frame)

        self._callbacks = (
            ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(place),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)(
                lambda at, n: send(ctypes.string_at(at, n))
            ),
        )
        self._c.ethernet_connect(*self._callbacks)
        self._c.udp_read.restype = ctypes.c_uint8
        self._c.udp_start(int.from_bytes(BOARD, "big"), PORT)

    def came(self) -> bool:
        """Take frames until a byte of the line has come, or none is left."""
        return bool(self._c.udp_came())

    def read(self) -> bytes:
        """Take all frames, and return the bytes that came."""
        found = bytearray()
        while self.came():
            found.append(self._c.udp_read())
            self._c.udp_flush()
        return bytes(found)

    def write(self, data: bytes) -> None:
        """Send bytes at once."""
        for byte in data:
            self._c.udp_write(byte)
        self._c.udp_flush()
