"""Every test of the database runs on both backends; PostgreSQL is a real server, started for the tests."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnpipe.experiment.database.database import RunDatabase

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")


def program(name: str) -> str:
    """Find a program of PostgreSQL; Debian keeps them out of the way."""
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found is None and not places:
        pytest.skip(f"PostgreSQL is not installed here: there is no {name}")
    return found or str(places[-1])


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Yield the address of a server that listens on a socket in a folder of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    postgres, initdb = program("postgres"), program("initdb")
    options: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="nnpipe-pg-", dir="/tmp"))  # paths of sockets are short
    if os.geteuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    server = None
    try:
        made = subprocess.run(
            [initdb, "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"],
            cwd=folder, capture_output=True, text=True, timeout=120, **options,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"PostgreSQL cannot make a database here: {made.stderr.strip()[-200:]}")
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(
                [postgres, "-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"],
                cwd=folder, stdout=log, stderr=log, **options,
            )  # fmt: skip
        address = f"postgresql://tester@/postgres?host={folder}"
        wait_for(server, address)
        yield address
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown: open connections are cut
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(server: subprocess.Popen[bytes], address: str) -> None:
    import psycopg

    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(address, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > end:
                pytest.skip(f"PostgreSQL does not start here: {error}")
            time.sleep(0.05)


@pytest.fixture(scope="session")
def schema_of_postgresql(postgresql_server: str) -> Callable[[], str]:
    """Return what makes the address of a schema of its own."""
    import psycopg

    numbers = itertools.count()

    def make() -> str:
        name = f"test_{next(numbers)}"
        with psycopg.connect(postgresql_server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{postgresql_server}&options=-csearch_path%3D{name}"

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    return str(request.getfixturevalue("schema_of_postgresql")())


@pytest.fixture
def opened(address: str, tmp_path: Path) -> Iterator[Callable[..., RunDatabase]]:
    """Yield what opens the database, as often as one likes."""
    databases: list[RunDatabase] = []

    def open_it(**options: Any) -> RunDatabase:
        databases.append(RunDatabase(address, **{"store": tmp_path / "store", **options}))
        return databases[-1]

    yield open_it
    for database in databases:
        database.close()


@pytest.fixture
def database(opened: Callable[..., RunDatabase]) -> RunDatabase:
    return opened()
