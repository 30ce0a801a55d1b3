"""Every test of the database runs on both backends; PostgreSQL is a real server, started for the
tests.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnpipe.experiment.database.database import RunDatabase

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Yield the address of a server that listens on a socket in a folder of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
    from _postgresql import postgresql

    with postgresql(sync=False) as address:
        if address is None:
            pytest.skip("PostgreSQL is not installed here, or does not start")
        yield address


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
