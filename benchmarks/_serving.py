"""A server of ours in a process of its own, for benchmarks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from nnpipe.core.runtime import Runtime
from nnpipe.core.runtimeprotocol import Listener
from nnpipe.protocols._socket import SocketListener
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.protocols.server import serve


@contextlib.contextmanager
def server(runtime: Runtime) -> Iterator[NetworkProtocol]:
    """Serve on this machine; gives the line to it.

    Parameters
    ----------
    runtime
        What runs the models.
    """
    read, write = os.pipe()
    pid = os.fork()

    def tell(listener: Listener) -> None:
        assert isinstance(listener, SocketListener)
        os.write(write, str(listener.address()[1]).encode())

    if pid == 0:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())  # ended so, it takes its models along
        try:
            serve(NetworkProtocol(port=0), runtime, ready=tell)
        finally:
            os._exit(1)
    try:
        yield NetworkProtocol(port=int(os.read(read, 16)))
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
