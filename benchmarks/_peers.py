"""What the protocol is compared with: bare sockets, gRPC and TVM RPC, each answering inputs with
4 KB.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnpipe.protocols.channels.stream_socket import disable_pacing

OUTPUT = 4096
STARTED = 60.0  # seconds that a peer's server has to start
Once = Callable[[], None]


class NotThere(Exception):
    """A peer could not be started."""


def installed(name: str) -> bool:
    """Return whether a package is, without importing it."""
    return importlib.util.find_spec(name) is not None


def free_port() -> int:
    """Return a port at which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


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
    """Fork a child and connect to it, as free of pacing as we are; in the child the pid is 0."""
    listener = socket.create_server(("127.0.0.1", 0))
    disable_pacing(listener)
    pid = os.fork()
    if pid:
        sock = socket.socket()
        disable_pacing(sock)
        sock.connect(listener.getsockname())
    else:
        sock = listener.accept()[0]
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
        with grpc.insecure_channel(
            f"127.0.0.1:{int(child.stdout.readline())}", options=options
        ) as channel:
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

    port = free_port()
    ports = ["--port", f"{port}", "--port-end", f"{port + 1}"]
    child = subprocess.Popen(
        [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", *ports],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what it starts outlives it
    )
    try:
        device = _tvm_remote(child, port).cpu()
        payload = np.zeros(size, np.uint8)
        there = tvm.runtime.empty((size,), "uint8", device)
        back = tvm.runtime.empty((OUTPUT,), "uint8", device)

        def once() -> None:
            there.copyfrom(payload)
            back.numpy()

        yield once
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _tvm_remote(child: subprocess.Popen[bytes], port: int) -> Any:
    """Connect to TVM's server, once it is there."""
    from tvm import rpc

    deadline = time.monotonic() + STARTED
    while True:
        try:
            return rpc.connect("127.0.0.1", port)
        except Exception as error:
            if child.poll() is not None:
                raise NotThere(f"its server ended with status {child.returncode}") from None
            if time.monotonic() > deadline:
                raise NotThere(
                    f"its server cannot be reached after {STARTED:g} s: {error}"
                ) from None
            time.sleep(0.2)
