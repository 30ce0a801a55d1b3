"""What the protocol costs beyond moving the same bytes through a bare socket.

Measures round trips of an inference that computes nothing (inputs of several
sizes out, 4 KB back) over TCP on this machine:

``put-run-get``
    three exchanges, each waited for: how a model is measured;
``infer``
    one exchange: how a model is used for one answer after another;
``pipelined``
    inputs are sent before the outputs of earlier ones are there;

against

``raw1``, ``raw3``
    one and three bare socket exchanges of the same bytes, 12-byte headers,
    TCP_NODELAY, ``sendmsg`` and ``recv_into`` preallocated memory, no
    integrity check;
gRPC
    a unary call, where ``grpcio`` is installed;
TVM RPC
    copying a tensor there and reading 4 KB back, where TVM is installed.

All in one run, one after another in turns, so that a change of the machine's
speed meets all alike.  Each turn begins with a part that is not measured, in
which the system finds places for the two processes: with one at a time at work
they soon share a core, with both at work they spread over two, and moving them
takes it some 20 ms.

Payloads are checked with XXH3 where the package ``xxhash`` is installed
(``pip install nnpipe[remote]``), else with what numpy can do; the table says
which.  ``--check`` names another.

    python benchmarks/protocol.py [--quick] [--payload BYTES ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.protocols._check import CHECKS, available, best
from nnpipe.protocols._handshake import Limits
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.protocols.remote import open_session
from nnpipe.protocols.server import serve
from nnpipe.testing.targets import NoOpRuntime, fake_model, flat_io

OUTPUT = 4096
PAYLOADS = (1024, 150_528, 602_112, 10_000_000)
MODEL = 100 << 20
TURN = 0.03  # seconds measured of each turn, and as long before that
MODES = ("put-run-get", "infer", "pipelined")
COLUMNS = ("raw1", "raw3", *MODES, "gRPC", "TVM RPC")
Once = Callable[[], None]


def receive(sock: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        count = sock.recv_into(view[got:])
        if not count:
            raise EOFError
        got += count


def send(sock: socket.socket, parts: list[bytes | memoryview]) -> None:
    sent = sock.sendmsg(parts)
    for part in parts:
        if sent < len(part):
            sock.sendall(memoryview(part)[sent:])
        sent = max(sent - len(part), 0)


def connection() -> tuple[socket.socket, int]:
    """Fork a child and connect to it; in the child the pid is 0."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    sock = socket.create_connection(listener.getsockname()) if pid else listener.accept()[0]
    listener.close()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock, pid


@contextlib.contextmanager
def raw(size: int, exchanges: int) -> Iterator[Once]:
    sock, pid = connection()
    header, payload, output = bytes(12), memoryview(bytearray(size)), memoryview(bytearray(OUTPUT))
    head = memoryview(bytearray(12))
    if pid == 0:
        with contextlib.suppress(EOFError, OSError):
            while True:
                receive(sock, head)
                receive(sock, payload)
                for _ in range(exchanges - 1):
                    send(sock, [header])
                    receive(sock, head)
                send(sock, [header, output])
        os._exit(0)

    def once() -> None:
        send(sock, [header, payload])
        for _ in range(exchanges - 1):
            receive(sock, head)
            send(sock, [header])
        receive(sock, head)
        receive(sock, output)

    try:
        yield once
    finally:
        sock.close()
        os.waitpid(pid, 0)


@contextlib.contextmanager
def server() -> Iterator[NetworkProtocol]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            serve(
                NetworkProtocol(port=0),
                NoOpRuntime(),
                ready=lambda listener: os.write(write, str(listener.address()[1]).encode()),
            )
        finally:
            os._exit(1)
    try:
        yield NetworkProtocol(port=int(os.read(read, 16)))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


@contextlib.contextmanager
def ours(size: int, mode: str, checks: Sequence[str] | None = None) -> Iterator[Callable[[int], None]]:
    batch = {"x": np.zeros(size, np.uint8)}
    limits = Limits(checks=available(checks))
    with tempfile.TemporaryDirectory() as folder, server() as protocol:
        with open_session(protocol, fake_model(Path(folder), flat_io(size, OUTPUT)), limits=limits) as session:

            def run(count: int) -> None:
                if mode == "pipelined":
                    for _ in session.pipelined(batch for _ in range(count)):
                        pass
                elif mode == "infer":
                    for _ in range(count):
                        session.infer(batch)
                else:
                    for _ in range(count):
                        session.put(batch)
                        session.run()
                        session.get()

            yield run


def repeated(once: Once) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            once()

    return run


@contextlib.contextmanager
def grpc_unary(size: int) -> Iterator[Once]:
    import grpc

    read, write = os.pipe()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    script = f"""
import grpc, os, sys
from concurrent import futures
reply = bytes({OUTPUT})
handler = grpc.method_handlers_generic_handler("s", {{"m": grpc.unary_unary_rpc_method_handler(lambda r, c: reply)}})
server = grpc.server(futures.ThreadPoolExecutor(1), options={options!r})
server.add_generic_rpc_handlers((handler,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
"""
    os.close(read)
    os.close(write)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        with grpc.insecure_channel(f"127.0.0.1:{int(child.stdout.readline())}", options=options) as channel:
            call = channel.unary_unary("/s/m")
            payload = np.zeros(size, np.uint8)

            def once() -> None:
                call(payload.tobytes())  # a request is bytes; making them is part of the call

            yield once
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@contextlib.contextmanager
def tvm_rpc(size: int) -> Iterator[Once]:
    import tvm
    from tvm import rpc

    child = subprocess.Popen(
        [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--port", "9190", "--port-end", "9290"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            try:
                remote = rpc.connect("127.0.0.1", 9190)
                break
            except Exception:
                time.sleep(0.2)
        device = remote.cpu()
        payload = np.zeros(size, np.uint8)
        there = tvm.runtime.empty((size,), "uint8", device)
        back = tvm.runtime.empty((OUTPUT,), "uint8", device)

        def once() -> None:
            there.copyfrom(payload)
            back.numpy()

        yield once
    finally:
        child.kill()
        child.wait()


def interleaved(contenders: dict[str, Callable[[int], None]], seconds: float) -> dict[str, float]:
    """Give each contender's time for one round trip, in µs: the median over turns."""
    counts = {}
    for name, run in contenders.items():
        run(3)
        begun = time.perf_counter()
        run(3)
        counts[name] = max(int(TURN / ((time.perf_counter() - begun) / 3)), 1)
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(turns[next(iter(turns))]) < 5:
        for name, run in contenders.items():
            run(counts[name])
            begun = time.perf_counter()
            run(counts[name])
            turns[name].append((time.perf_counter() - begun) / counts[name] * 1e6)
    return {name: statistics.median(found) for name, found in turns.items()}


def installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def round_trips(size: int, seconds: float, checks: Sequence[str] | None) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        contenders: dict[str, Callable[[int], None]] = {
            "raw1": repeated(stack.enter_context(raw(size, 1))),
            "raw3": repeated(stack.enter_context(raw(size, 3))),
            **{mode: stack.enter_context(ours(size, mode, checks)) for mode in MODES},
        }
        if installed("grpc"):
            contenders["gRPC"] = repeated(stack.enter_context(grpc_unary(size)))
        if installed("tvm") and size <= 1_000_000:
            contenders["TVM RPC"] = repeated(stack.enter_context(tvm_rpc(size)))
        return interleaved(contenders, seconds)


def raw_copy(source: Path, folder: Path) -> float:
    """Seconds to bring a file through a bare socket into another file."""
    sock, pid = connection()
    if pid == 0:
        view = memoryview(bytearray(1 << 20))
        with open(folder / "copy", "wb", buffering=0) as file:
            while count := sock.recv_into(view):
                file.write(view[:count])
        sock.sendall(b"!")
        os._exit(0)
    begun = time.perf_counter()
    view = memoryview(bytearray(1 << 20))
    with open(source, "rb", buffering=0) as file:
        while count := file.readinto(view):
            sock.sendall(view[:count])
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)
    seconds = time.perf_counter() - begun
    sock.close()
    os.waitpid(pid, 0)
    (folder / "copy").unlink()
    return seconds


def our_copy(protocol: NetworkProtocol, model: Artifact) -> float:
    begun = time.perf_counter()
    with open_session(protocol, model):
        return time.perf_counter() - begun


def model_arrival(turns: int) -> tuple[float, float]:
    mine, bare = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(turns):
            with server() as protocol:
                model = fake_model(folder, flat_io(16, 16), padding=MODEL)
                bare.append(raw_copy(model.path, folder))
                mine.append(our_copy(protocol, model))
                model.path.unlink()
    return statistics.median(mine), statistics.median(bare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds a size")
    parser.add_argument("--payload", type=int, nargs="+", default=PAYLOADS, metavar="BYTES")
    parser.add_argument("--check", nargs="+", choices=[check.name for check in CHECKS], help="(default: all there are)")
    options = parser.parse_args()
    seconds = 5.0 if options.quick else 30.0
    findings: list[dict[str, Any]] = []
    beside: list[str] = []

    def judge(name: str, value: float, unit: str, reference: str, ratio: float, goal: float) -> None:
        findings.append(
            {"name": name, "value": round(value, 3), "unit": unit, "reference": reference, "ratio": round(ratio, 3),
             "goal": goal, "holds": ratio >= goal}
        )  # fmt: skip

    check = best(available(options.check)).name
    print(f"integrity check of ours: {check}; of the others: that of TCP")
    print(f"{'bytes':>12}  " + "".join(f"{name:>12}" for name in COLUMNS) + "   µs")
    for size in options.payload:
        found = round_trips(size, seconds, options.check)
        row = "".join(f"{found[name]:12,.1f}" if name in found else f"{'-':>12}" for name in COLUMNS)
        print(f"{size:12,}  {row}", flush=True)
        mine, ahead = found["put-run-get"], found["pipelined"]
        goal = 0.35 if size < 150_000 else 0.5
        judge(f"put-run-get, {size:,} B", 1e6 / mine, "1/s", "raw3", found["raw3"] / mine, goal)
        if size >= 150_000:
            judge(f"pipelined, {size:,} B", 1e6 / ahead, "1/s", "raw1", found["raw1"] / ahead, 0.7)
        if size == 150_528:
            for peer, goal in (("gRPC", 10), ("TVM RPC", 50)):
                if peer not in found:
                    continue
                judge(f"pipelined against {peer}", 1e6 / ahead, "1/s", peer, found[peer] / ahead, goal)
                # Waiting for each answer cannot be quicker than the bare socket that waits.
                beside += [
                    f"{name + ' against ' + peer:32} {found[peer] / found[name]:8.3f} of {peer}"
                    for name in ("raw1", "raw3", "put-run-get", "infer")
                ]
    mine, bare = model_arrival(3 if options.quick else 9)
    print(f"a model of 100 MiB arrives in {mine * 1e3:.0f} ms, a raw copy in {bare * 1e3:.0f} ms")
    judge("100 MiB model", mine * 1e3, "ms", "raw copy", bare / mine, 1 / 3)
    for finding in findings:
        print(f"{finding['name']:32} {finding['ratio']:8.3f} of {finding['reference']:8} goal {finding['goal']:6.3g}  "
              f"{'holds' if finding['holds'] else 'MISSED'}")  # fmt: skip
    print(*beside, sep="\n")
    worst = min(findings, key=lambda finding: finding["ratio"] / finding["goal"])
    print(json.dumps(worst | {"holds": all(finding["holds"] for finding in findings), "all": findings}))


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
