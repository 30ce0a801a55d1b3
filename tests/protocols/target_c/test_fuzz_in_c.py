"""Whatever the target in C and its server hear, the sanitisers find nothing, and the next client
is served.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from answering import SANITISED, framed
from noise import mutated, pieces
from serving import CServer, expected, write_model

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import TransportError
from nnpipe.protocols.client.connection import describe
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.frame import CRC32, FrameKind, pack_header
from nnpipe.protocols.conversation.handshake import Limits, pack_hello
from nnpipe.protocols.conversation.payloads import ModelOffer
from nnpipe.protocols.target_c import CORE, FOLDER, PROOF
from nnpipe.testing.protocol import assert_equal_outputs
from nnpipe.testing.raw_host import BEGIN, END, RawHost, create_model_batch, create_model_payload
from nnpipe.workflows.devices.c_server import build_server

SOURCE = Path(__file__).parents[3] / "fuzz" / "target_in_c.c"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]


def test_the_fuzz_target_finds_nothing(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    sources = [str(path) for path in (SOURCE, *CORE, PROOF)]
    flags = [
        "-std=c99",
        "-O1",
        "-DALONE",
        "-Wall",
        "-Wextra",
        "-Werror",
        *SANITISED,
        "-I",
        str(FOLDER),
    ]
    subprocess.run(["gcc", *flags, "-o", str(program), *sources], check=True)
    done = subprocess.run([str(program), "200000"], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[:2000]
    ended = [int(word) for word in done.stdout.split() if word.isdigit()][1:]
    assert sum(ended) == 200_000
    assert min(ended[0], ended[2], ended[4], ended[7], ended[8]) > 100, (
        "all states that last are reached"
    )


@pytest.mark.parametrize("count", [1000, 5000])
def test_a_server_outlives_mutated_conversations(tmp_path: Path, count: int) -> None:
    model = write_model(tmp_path)
    program = build_server([model.path], tmp_path / "server", flags=("-O1", *SANITISED)).path
    chance = random.Random(count)
    good = conversation(model)
    ended: Counter[str] = Counter()
    with CServer(program, "--timeout", "1", "--greeting-timeout", "1") as server:
        process = psutil.Process(server.process.pid)

        def visits(number: int) -> tuple[int, int]:
            for n in range(number):
                heard = (
                    mutated(good, chance)
                    if n % 2
                    else good[: chance.choice(ENDS)] + framed(chance, 1 + n % 12)
                )
                ended[visit(server, heard, chance)] += 1
                if n % 100 == 0:
                    batch = create_model_batch(model, n)
                    with open_session(server.protocol, model) as session:
                        assert_equal_outputs(session.infer(batch), expected(batch))
            until = time.monotonic() + 10
            while process.children() and time.monotonic() < until:
                time.sleep(0.05)
            assert not process.children()
            return process.memory_info().rss, process.num_fds()

        before = visits(200)
        after = visits(count)
        status, log = server.stop()
    assert status == 0
    assert "Sanitizer" not in log, log[log.index("Sanitizer") - 200 :][:3000]
    assert "runtime error" not in log, log[:3000]
    assert "ended" not in log, log[:3000]
    assert after[1] == before[1]
    assert after[0] <= before[0] + (64 << 10), (before, after)
    assert min(ended["OK"], ended["PROTOCOL"]) > count // 20, ended


ENDS: list[int] = []
"""Where the frames of the last good conversation end."""


def conversation(model: Artifact) -> bytes:
    """Return what a good host says, from HELLO to the second inference."""
    inputs = create_model_payload(model, 0)
    offer = ModelOffer(model.size, bytes.fromhex(model.sha256), describe(model, "")).pack()
    requests = [
        (FrameKind.HELLO, pack_hello(Limits(extensions=7), bytes(16)), 0),
        (FrameKind.MODEL, offer, BEGIN),
        (FrameKind.MODEL, b"", END),
        (FrameKind.STATS, b"", 0),
        (FrameKind.DATA, inputs, 0),
        (FrameKind.PROCESS, b"", 0),
        (FrameKind.OUTPUT, b"", 0),
        (FrameKind.INFER, inputs, 0),
        (FrameKind.DATA, b"wrong", 0),
        (FrameKind.PROCESS, b"", 0),
        (FrameKind.OUTPUT, b"", 0),
        (FrameKind.INFER, inputs, 0),
    ]
    said = b""
    ENDS[:] = [0]
    for number, (kind, payload, flags) in enumerate(requests, 1):
        said += pack_header(kind, int(flags), number, len(payload), CRC32.of([payload])) + payload
        ENDS.append(len(said))
    return said


def visit(server: CServer, heard: bytes, chance: random.Random) -> str:
    """Send all that, and leave; return how the first answer to it that is an ERROR, or the last,
    is named.
    """
    with RawHost(server.protocol) as host, contextlib.suppress(TransportError):
        for piece in pieces(heard, chance):
            host.send(piece)
        if chance.random() < 0.2:
            return "left"
        host.channel._sock.shutdown(1)  # type: ignore[attr-defined]
        code = 0
        with contextlib.suppress(TransportError):
            while not code:
                code = host.answer().code
        return "OK" if not code else "PROTOCOL" if code == 1 else str(code)
    return "cut"
