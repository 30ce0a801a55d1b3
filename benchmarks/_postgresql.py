"""A PostgreSQL server for benchmarks and tests, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL; Debian keeps them out of the way."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


@contextmanager
def postgresql(connections: int = 100, *, sync: bool = True) -> Iterator[str | None]:
    """Yield the address of a new server on a socket; ``None`` if PostgreSQL is not installed or
    does not start.

    With ``sync=False`` it does not wait for the disk.
    """
    postgres, initdb = program("postgres"), program("initdb")
    if postgres is None or initdb is None:
        yield None
        return
    import psycopg

    options: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="nnpipe-pg-", dir="/tmp"))  # paths of sockets are short
    if os.geteuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    server = None
    try:
        made = subprocess.run(
            [
                initdb,
                "-D",
                str(folder / "data"),
                "-U",
                "tester",
                "-A",
                "trust",
                "-E",
                "UTF8",
                *([] if sync else ["--no-sync"]),
            ],
            cwd=folder,
            capture_output=True,
            timeout=120,
            check=False,
            **options,
        )
        if made.returncode:
            yield None
            return
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(
                [
                    postgres,
                    "-D",
                    str(folder / "data"),
                    "-k",
                    str(folder),
                    "-c",
                    "listen_addresses=",
                    "-c",
                    f"max_connections={connections}",
                    "-c",
                    f"fsync={'on' if sync else 'off'}",
                ],
                cwd=folder,
                stdout=log,
                stderr=log,
                **options,
            )
        address = f"postgresql://tester@/postgres?host={folder}"
        limit = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(address, connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                if server.poll() is not None or time.monotonic() > limit:
                    yield None
                    return
                time.sleep(0.05)
        yield address
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown: open connections are cut
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
