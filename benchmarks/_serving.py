"""A server of ours, as a user starts it, for benchmarks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from nnpipe.core.runtime import Runtime
from nnpipe.protocols.network import NetworkProtocol


@contextlib.contextmanager
def server(runtime: type[Runtime]) -> Iterator[NetworkProtocol]:
    """Serve on this machine with the command, in a process that holds nothing of this one; gives
    the line to it.

    Parameters
    ----------
    runtime
        What runs the models.
    """
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in (NetworkProtocol, runtime)]
    command = [
        sys.executable,
        "-m",
        "nnpipe",
        "inference_server",
        *names,
        "--port",
        "0",
        "--verbosity",
        "warning",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline()  # "... is served at HOST:PORT"
            if not said:
                raise SystemExit("the server did not start")
            yield NetworkProtocol(port=int(said.rpartition(":")[2]))
        finally:
            child.terminate()  # ended so, it takes its models along
