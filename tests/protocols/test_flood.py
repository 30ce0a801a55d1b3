"""Clients of an open server who are greeted, get a process of their own, and then talk nonsense,
several at a time.

Those who are turned away before that are in ``test_faults.py``; here the
supervisor has made, watched and cleared away a worker for each one served.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, serves, wait_for

from nnpipe.core.errors import NNPipeError, TargetError, TransportError
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind, pack_header
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ModelOffer

TIMEOUT = 5.0
# bytes that the allocator may keep; 110 a visit in the longer test, so that less than that is seen
GROWTH = 1 << 20


@pytest.mark.slow
def test_five_hundred_malformed_clients_leave_nothing_behind(tmp_path: Path) -> None:
    flood(500, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_malformed_clients_leave_nothing_behind(tmp_path: Path) -> None:
    flood(10_000, tmp_path)


def flood(count: int, folder: Path, at_once: int = 4) -> None:
    with Server(timeout=TIMEOUT) as server:
        process = psutil.Process(server.process.pid)
        ends: Counter[str] = Counter()

        def crowd(number: int, seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(number):
                ends[visit(server, chance)] += 1

        def crowds(number: int, seed: int) -> None:
            threads = [
                threading.Thread(target=crowd, args=(number // at_once, seed + n))
                for n in range(at_once)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        def settled() -> tuple[int, int, int]:
            wait_for(lambda: not server.workers())
            serves(server.protocol, folder)
            wait_for(lambda: not server.workers())
            return (
                process.memory_info().rss,
                process.num_fds(),
                len(process.memory_maps(grouped=False)),
            )

        crowds(80, 100)
        before = settled()
        ends.clear()
        crowds(count // 2, 0)
        serves(server.protocol, folder)  # a real client in between
        crowds(count - count // 2, at_once)
        after = settled()
        print(f"{dict(ends)}; memory, descriptors and maps before {before}, after {after}")
        assert sum(ends.values()) >= count - 2 * at_once
        assert ends["served"] > count // 20, "workers are what this is about"
        assert min(ends["busy"], ends["raw"]) > 0
        assert after[1] == before[1]
        assert after[0] <= before[0] + GROWTH
        assert after[2] <= before[2] + 10
        assert server.stop() == 0
        assert "Traceback" not in server.log


def visit(server: Server, chance: random.Random) -> str:
    """Come, talk nonsense, and leave; gives how far one got."""
    what = chance.randrange(6)
    if what == 0:
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as sock,
        ):
            sock.sendall(chance.randbytes(chance.choice((1, 30, 3000))))
        return "raw"
    connection = Connection(server.protocol.connect(), HostConversation(number=1))
    try:
        connection.perform_handshake()
        if what == 1:
            connection.send([chance.randbytes(chance.choice((1, 24, 3000)))])
        elif what == 2:
            connection.send([pack_header(chance.randrange(256), 0, 2, chance.getrandbits(32), 0)])
        elif what == 3:
            offer = ModelOffer(1 << 20, bytes(32), {"format": "fake"}).pack()
            connection.ask(FrameKind.MODEL, (offer,), FrameFlag.BEGIN)
        elif what == 4:
            frames = connection.conversation.ask(FrameKind.STATS)
            spoilt = bytearray(b"".join(map(bytes, frames)))
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
            connection.send([bytes(spoilt)])
            connection.answer()
    except TargetError as error:
        if error.code == ErrorCode.BUSY:
            return "busy"
    except TransportError:
        return "cut"
    except NNPipeError as error:
        return type(error).__name__
    finally:
        connection.close()
    return "served"
