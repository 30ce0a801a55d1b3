"""Whether the time that a target reports is that of the inference, and the wire's that of the wire.

A model spins for 0, 0.5, 2 and 20 ms on a server of its own and tells how long
it took by its own clock, which is the reference.  The same model is run, in
turns, over a line on which every packet is held up for 20 ms on its way there
and on its way back.

Judged: the median difference between the time reported and the model's own, on
either line, against 3 % of the model's time or 10 µs, whichever is more; and
the difference that the delay makes to the wire's share, against the bound that
the session states (it is half the round trip, as nobody can tell how a delay
is split between there and back).

    python benchmarks/target_time.py [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _serving import server
from _table import EPYC, report

from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.testing.fakes import FakeRuntime, write_fake_model

SPINS_US = (0, 500, 2000, 20_000)
DELAY = 0.02  # seconds, each way
IO = IOSpec((TensorSpec("x", (4,), "uint8"),), (TensorSpec("taken_ns", (1,), "int64"),))
BATCH = {"x": np.zeros(4, np.uint8)}


@contextlib.contextmanager
def slow_line(port: int) -> Iterator[int]:
    """A process that holds up everything between its port, which it gives, and another."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        host = listener.accept()[0]
        target = socket.create_connection(("127.0.0.1", port))
        for end in (host, target):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=forward, args=(host, target), daemon=True).start()
        forward(target, host)
        os._exit(0)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def forward(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes, each piece after the delay, however many are under way."""
    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def deliver() -> None:
        while True:
            due, data = pieces.get()
            time.sleep(max(due - time.monotonic(), 0))
            sink.sendall(data)

    threading.Thread(target=deliver, daemon=True).start()
    while data := source.recv(1 << 16):
        pieces.put((time.monotonic() + DELAY, data))


def run(session: RemoteSession) -> int:
    """Run the model once; gives how many nanoseconds it took by its own clock."""
    session.put(BATCH)
    session.run()
    return int(session.get()["taken_ns"][0])


def measure(spin_us: int, turns: int) -> dict[str, Any]:
    """Run one model on both lines, by turns."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_fake_model(folder, IO, spin_us=spin_us, tell_time=True)
        plain, delayed = (stack.enter_context(server(FakeRuntime)).port for _ in range(2))
        ports = {"plain": plain, "delayed": stack.enter_context(slow_line(delayed))}
        sessions = {
            name: stack.enter_context(open_session(NetworkProtocol(port=port), model))
            for name, port in ports.items()
        }
        own: dict[str, list[int]] = {name: [] for name in sessions}
        for _ in range(turns):
            for name, session in sessions.items():
                own[name].append(run(session))
        columns = {name: session.columns(turns) for name, session in sessions.items()}
        bound = sum(session.stats()["clock"]["error_ns"] for session in sessions.values())
    wrong = {
        name: np.median(columns[name]["target_ns"] - np.array(own[name])) / 1e3 for name in sessions
    }
    wire = {name: np.median(columns[name]["wire_ns"]) / 1e3 for name in sessions}
    return {
        "spin µs": spin_us,
        "own µs": float(np.median(own["plain"])) / 1e3,
        "target µs": float(np.median(columns["plain"]["target_ns"])) / 1e3,
        "wrong by µs": float(wrong["plain"]),
        "wrong by µs, delayed": float(wrong["delayed"]),
        "wire µs": float(wire["plain"]),
        "wire µs, delayed": float(wire["delayed"]),
        "bound µs": bound / 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="15 runs of each model instead of 100")
    turns = 15 if parser.parse_args().quick else 100
    rows = [measure(spin, turns) for spin in SPINS_US]
    parts = []
    for row in rows:
        spin = row["spin µs"]
        allowed = max(0.03 * row["own µs"], 10.0)
        for line in ("wrong by µs", "wrong by µs, delayed"):
            parts.append(
                part(f"target time of {spin} µs, {line}", row[line], abs(row[line]), allowed)
            )
        shown = row["wire µs, delayed"] - row["wire µs"]
        parts.append(
            part(
                f"delay in the wire's share, {spin} µs",
                shown,
                abs(shown - 2e6 * DELAY),
                row["bound µs"],
            )
        )
    worst = max(parts, key=lambda each: each["ratio"])
    fields = {
        name: worst[name]
        for name in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(each["holds"] for each in parts), parts=parts)


def part(name: str, value: float, wrong: float, allowed: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": "µs",
        "reference": allowed,
        "ratio": wrong / allowed,
        "goal": f"wrong by at most {allowed:,.1f} µs",
        "holds": wrong <= allowed,
        "seen_on": EPYC,
    }


if __name__ == "__main__":
    sys.exit(main())
