"""The server in C: its size, its memory after ten thousand connections, and the quality through it.

The keyword network of MLPerf Tiny is compiled to C and linked with the server.  Clients of six
kinds come and go: some are served whole conversations, others damage them, send noise, or leave in
the middle of a frame.  Its resident memory and open files are read before and after.  A dozen go to
the server in Python, which builds the C source with gcc whenever it loads it.  Then both serve the
commands that measure quality on the test clips of Speech Commands.

The goal: less than 100,000 bytes of program beside the model, no byte of memory more, and the same
scores of each clip from both servers and from this machine.

It needs gcc and the shared data.

    python benchmarks/c_server.py [--quick] [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from _table import DATA, EPYC, existing, report, skip_without

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import TransportError
from nnpipe.measuring.run import Run
from nnpipe.protocols.conversation.frame import FrameKind
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.testing.raw_host import RawHost, connect_host, create_model_payload
from nnpipe.workflows.devices.c_server import BuiltServer, build_server

CLIPS = (
    "SpeechCommandsDataset",
    "--transform",
    "MFCC",
    "--transform-options",
    "num_coefficients=10",
    "lower_hz=20",
    "upper_hz=4000",
    "normalise=maximum",
)
KINDS = ("served", "damaged", "noise", "left at once", "left in a frame", "two at a time")


class Server:
    """A server in a process of its own, whose log goes to a file."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._log = (folder / "log.txt").open("a")
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().rpartition(":")[2])
        self.protocol = NetworkProtocol(port=self.port, timeout=20)
        self.process = psutil.Process(self._process.pid)

    def settled(self) -> dict[str, float]:
        """Return resident bytes, open files and processor seconds when no client is served."""
        until = time.monotonic() + 20
        while self.process.children() and time.monotonic() < until:
            time.sleep(0.02)
        times = self.process.cpu_times()
        seconds = times.user + times.system + times.children_user + times.children_system
        return {
            "own": self._own_bytes(),
            "rss": self.process.memory_info().rss,
            "files": self.process.num_fds(),
            "seconds": seconds,
        }

    def _own_bytes(self) -> int:
        """Return the resident memory that is no part of a file, such as a page of the program.

        The kernel counts the pages for this file; the figures in ``status`` are near sums over
        processors.
        """
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("Anonymous:")]
        return int(line.split()[1]) * 1024

    def stop(self) -> int:
        self._process.terminate()
        status = self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
        return status


def visit(
    server: Server, model: Artifact, payload: bytes, chance: random.Random, kind: str
) -> None:
    """Come as one kind of client."""
    if kind in ("noise", "left at once"):
        with (
            socket.create_connection(("127.0.0.1", server.port), 20) as sock,
            contextlib.suppress(OSError),
        ):
            if kind == "noise":
                sock.sendall(chance.randbytes(chance.choice((24, 100, 5000))))
                sock.recv(100)
        return
    with (
        contextlib.suppress(TransportError),
        connect_host(server.protocol, extensions=4) as (host, _),
    ):
        if kind == "damaged":
            sent = bytearray(host.frame(FrameKind.STATS))
            sent[chance.randrange(len(sent))] ^= 1 << chance.randrange(8)
            host.send(bytes(sent))
            assert host.answer().fatal
            return
        assert host.load(model).kind is FrameKind.OK
        if kind == "left in a frame":
            host.send(host.frame(FrameKind.INFER, payload)[: chance.choice((1, 24, 100))])
            return
        assert host.ask(FrameKind.INFER, payload).kind is FrameKind.OK
        if kind == "two at a time":
            with RawHost(server.protocol) as other:
                assert other.perform_handshake().fatal


def visited(server: Server, model: Artifact, count: int, first: int) -> dict[str, Any]:
    """Return memory before and after so many connections, and what one took of the processor."""
    chance, payload = random.Random(count), create_model_payload(model, 0)
    for number in range(first):
        visit(server, model, payload, chance, KINDS[number % len(KINDS)])
    before = server.settled()
    for number in range(count):
        visit(server, model, payload, chance, KINDS[number % len(KINDS)])
    after = server.settled()
    return {
        "connections": count,
        "memory before": before["own"],
        "memory after": after["own"],
        "with files before": before["rss"],
        "with files after": after["rss"],
        "files more": after["files"] - before["files"],
        "CPU ms each": round((after["seconds"] - before["seconds"]) / count * 1e3, 3),
    }


def judged(folder: Path, data: Path, name: str, samples: int | None, where: list[str]) -> Run:
    """Return a measurement of the keyword network in C by the command that users type."""
    model = data / "models/mlperf_tiny_kws/kws_ref_model.tflite"
    dataset, *transform = CLIPS
    command = [
        sys.executable,
        "-m",
        "nnpipe",
        "inference_tester",
        str(model),
        "CCompiler",
        "CRuntime",
        dataset,
        str(folder / f"{name}.json"),
        "--arena-seconds",
        "0",
        "--dataset-root",
        str(data / "speech_commands"),
        "--measure-seconds",
        "0",
        "--warmup-runs",
        "1",
        "--compiled-model-path",
        str(folder / f"{name}.c"),
        *transform,
        *where,
        *([] if samples is None else ["--measure-samples", str(samples)]),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Run.read(folder / f"{name}.json")


def right(run: Run) -> int:
    assert run.evaluation is not None
    return int((run.evaluation.arrays["rank"] == 0).sum())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the connections, and 60 clips instead of 180",
    )
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    skip_without("gcc")
    existing(options.data)
    count, samples = (1000, 60) if options.quick else (10_000, None)
    with tempfile.TemporaryDirectory(prefix="nnpipe-c-server-") as where:
        folder = Path(where)
        here = judged(folder, options.data, "here", samples, [])
        model = Artifact.read(folder / "here.c")
        built: BuiltServer = build_server([model.path], folder / "server")
        python = [
            sys.executable,
            "-m",
            "nnpipe",
            "inference_server",
            "NetworkProtocol",
            "CRuntime",
            "--port",
            "0",
        ]
        commands = {
            "C": [str(built.path), "--port", "0"],
            "Python": [*python, "--allow-native-code-from-clients"],
        }
        rows, runs = [], {"here": here}
        for name, command in commands.items():
            server = Server(folder, command)
            try:
                row = visited(server, model, *((count, 300) if name == "C" else (12, 6)))
                remote = ["--protocol-cls", "NetworkProtocol", "--port", str(server.port)]
                runs[name] = judged(folder, options.data, name, samples, remote)
            finally:
                status = server.stop()
            rows.append({"server": name, **row, "right": right(runs[name]), "status": status})
        rows.append({"server": "none", "right": right(here)})
        print(
            json.dumps({"bytes": built.size, "bytes without models": built.own_size}),
            file=sys.stderr,
        )
    same = all(
        run.evaluation is not None
        and here.evaluation is not None
        and (run.evaluation.arrays["scores"] == here.evaluation.arrays["scores"]).all()
        for run in runs.values()
    )
    before, after = float(rows[0]["memory before"]), float(rows[0]["memory after"])
    holds = (
        after <= before
        and rows[0]["files more"] == 0
        and built.own_size < 100_000
        and same
        and all(row.get("status", 0) == 0 for row in rows)
    )
    return report(
        rows,
        f"memory of the server in C after {count:,} connections",
        after,
        "bytes",
        before,
        after / before,
        "not a byte more, under 100,000 bytes of program, the scores of this machine and of Python",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
