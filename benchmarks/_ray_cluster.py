"""A Ray cluster of several nodes on one machine, for benchmarks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

_PATIENCE = 240.0
_ATTEMPTS = 3
_MEMORY = "--object-store-memory=80000000"  # the least that Ray takes is 75 MiB


class Cluster:
    """A head without processors, and nodes that can be killed.

    Parameters
    ----------
    nodes
        The number of nodes besides the head.
    cpus
        The processors that each of them offers.
    environment
        Variables of all processes.
    """

    def __init__(self, nodes: int, cpus: int, environment: Mapping[str, str]) -> None:
        self._folder = Path("/tmp") / f"ray-{uuid.uuid4().hex[:8]}"  # paths of sockets are short
        self._environment = {**os.environ, **environment, "RAY_USAGE_STATS_ENABLED": "0"}
        self._log = self._folder.with_suffix(".log")
        self._port, dashboard = free_port(), free_port()
        self.address = f"ray://127.0.0.1:{dashboard}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._start(
            "--head",
            f"--port={self._port}",
            "--num-cpus=0",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--temp-dir={self._folder}",
        )
        self._wait(f"http://127.0.0.1:{dashboard}", 1)
        for number in range(nodes):
            # Through its agent a node shows the logs of its jobs; on one machine each needs a port
            # of its own.
            agent = f"--dashboard-agent-listen-port={free_port()}"
            self._start(f"--address=127.0.0.1:{self._port}", f"--num-cpus={cpus}", agent)
            self._wait(f"http://127.0.0.1:{dashboard}", 2 + number)

    def kill_node(self, number: int) -> int:
        """Kill a node with all that runs on it, as if its machine failed; return the number of
        processes.
        """
        return kill(self._started[1 + number].pid)

    def close(self) -> None:
        """Kill everything."""
        for process in reversed(self._started):
            kill(process.pid)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._log.unlink(missing_ok=True)

    def _start(self, *options: str) -> None:
        program = Path(sys.executable).with_name("ray")
        with open(self._log, "ab") as log:
            self._started.append(
                subprocess.Popen(
                    [program, "start", "--block", _MEMORY, *options],
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
            )

    def _wait(self, dashboard: str, nodes: int) -> None:
        import requests

        limit = time.monotonic() + _PATIENCE
        while time.monotonic() < limit:
            if self._started[-1].poll() is not None:
                raise SystemExit(
                    f"Ray ended while it was starting: "
                    f"{self._log.read_text('utf-8', 'replace')[-2000:]}"
                )
            try:
                found = requests.get(f"{dashboard}/nodes?view=summary", timeout=5).json()["data"][
                    "summary"
                ]
                jobs = requests.get(f"{dashboard}/api/jobs/", timeout=5)
                if (
                    len([each for each in found if each["raylet"].get("state") == "ALIVE"]) >= nodes
                    and jobs.ok
                ):
                    return
            except (requests.RequestException, KeyError, ValueError):
                pass
            time.sleep(1)
        raise SystemExit("Ray did not start")


@contextmanager
def cluster(nodes: int, cpus: int, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield a cluster, and kill it at the end."""
    for attempt in range(_ATTEMPTS):
        found = Cluster.__new__(Cluster)
        try:
            found.__init__(nodes, cpus, environment)  # type: ignore[misc]
            break
        except SystemExit:  # Ray waits 30 s for a node, which a busy machine may not keep
            found.close()
            if attempt == _ATTEMPTS - 1:
                raise
    try:
        yield found
    finally:
        found.close()


def kill(pid: int) -> int:
    """Kill a process and its descendants; return how many."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return len(family)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
