"""Emulated ARM Linux by ``tools/arm_linux``; a test that asks for it is skipped where it cannot
be had.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

COMMAND = Path(__file__).parents[2] / "tools" / "arm_linux"
PATIENCE = 1500.0  # seconds; the first time, packages are fetched


@contextmanager
def emulated(
    tool: str, ready: str, words: Sequence[str], folder: Path
) -> Iterator[tuple[int, str]]:
    """Run the tool at a free port until the block is left; yield the port, and the line that
    says it is ready.
    """
    missing = [name for name in (tool, "apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: apt install qemu-user qemu-system-arm, on Debian")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / f"emulated-{port}.log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, COMMAND, *words, "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield port, _line(process, ready, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _line(process: subprocess.Popen[bytes], ready: str, log: Path) -> str:
    lines: list[str] = []

    def read(stream: IO[bytes]) -> None:
        lines.extend(iter(lambda: stream.readline().decode("utf-8", "replace"), ""))

    assert process.stdout is not None
    threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    limit = time.monotonic() + PATIENCE
    while not (found := [line for line in lines if ready in line]):
        if process.poll() is not None:
            said = log.read_text("utf-8", "replace")
            if any(word in said for word in ("apt-get", "packages for")):
                pytest.skip(f"Debian's or PyPI's packages cannot be fetched: {said[-300:]}")
            raise AssertionError(said[-2000:])
        assert time.monotonic() < limit, lines
        time.sleep(0.1)
    return found[0]
