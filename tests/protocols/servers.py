"""Server processes for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.testing.fakes import compute_expected, write_fake_model
from nnpipe.testing.protocol import IO, assert_equal_outputs, create_batch


class Server:
    """``nnpipe inference_server`` in a process of its own."""

    def __init__(
        self,
        *options: str,
        runtime: str = "nnpipe.testing.fakes.FakeRuntime",
        protocol: Sequence[str] = ("nnpipe.protocols.network.NetworkProtocol", "--port", "0"),
        prepare: Callable[[], None] | None = None,
        prefix: Sequence[str] = (),
        timeout: float = 1.0,
    ) -> None:
        name, *where = protocol
        command = [
            *prefix,
            sys.executable,
            "-m",
            "nnpipe.scenarios.inference_server",
            name,
            runtime,
            *where,
            "--timeout",
            str(timeout),
            *options,
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUNBUFFERED": "1",
        }
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=prepare,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        assert self.process.poll() is None or self.lines, self.log
        self.timeout = timeout

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if " is served at " in line:
                self._ready.set()
        self._ready.set()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def port(self) -> int:
        line = next(line for line in self.lines if " is served at " in line)
        return int(line.rpartition(":")[2])

    @property
    def protocol(self) -> NetworkProtocol:
        return NetworkProtocol(port=self.port, timeout=self.timeout)

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def worker(self) -> psutil.Process:
        """The one worker; it is there shortly after a client has been greeted."""
        found: list[psutil.Process] = []

        def one() -> bool:
            found[:] = self.workers()
            return len(found) == 1

        wait_for(one)
        return found[0]

    def wait_for_log(self, text: str) -> None:
        wait_for(lambda: text in self.log, lambda: self.log)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20)
        self._thread.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def kill(self) -> None:
        self.process.kill()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self._thread.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait_for(
    condition: Callable[[], object], tell: Callable[[], str] = lambda: "", seconds: float = 20.0
) -> None:
    """Look again and again until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds} s {tell()}"
        time.sleep(0.01)


def serves(protocol: RuntimeProtocol, folder: Path, token_file: Path | None = None) -> None:
    """Assert that a client is served, and rightly."""
    model = write_fake_model(folder, IO)
    with open_session(protocol, model, RemoteOptions(token_file=token_file)) as session:
        check_session(session)


def check_session(session: RemoteSession, seeds: Sequence[int] = (0, 1)) -> None:
    """Assert that a session computes what it should, one by one and pipelined."""
    for seed in seeds:
        batch = create_batch(1 + seed % 3, seed)
        session.put(batch)
        session.run()
        assert_equal_outputs(session.get(), compute_expected(IO, batch))
    batches = [create_batch(2, seed) for seed in seeds]
    for batch, found in zip(batches, session.run_pipelined(batches), strict=True):
        assert_equal_outputs(found, compute_expected(IO, batch))


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Assert that the block ends in time."""
    begun = time.monotonic()
    yield
    taken = time.monotonic() - begun
    assert taken < seconds, f"it took {taken:.1f} s"
