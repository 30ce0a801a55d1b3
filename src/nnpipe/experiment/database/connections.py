"""Opening a run database: SQLite in a file, or PostgreSQL by its address."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.experiment.database import _run_lookup, _tables
from nnpipe.experiment.database._tables import WrongValue

_LIMIT_LENGTH = 0  # of sqlite3.h: SQLITE_LIMIT_LENGTH
_LONGEST = 64 << 20  # bytes of a value
_LOCK = 0x6E6E_7069_7065  # "nnpipe": the advisory lock of PostgreSQL that writers take


class Connections:
    """Transactions on one database.

    It can be used by several threads, and by processes forked later.

    See :class:`~nnpipe.experiment.database.database.RunDatabase` for addresses,
    arguments and errors.
    """

    def __init__(self, address: str | Path, *, create: bool = True, patience: float = 60.0) -> None:
        self._patience = patience
        self.url = _parse_url(address)
        self.postgresql = self.url.get_backend_name() == "postgresql"
        self.shown = (
            self.url.render_as_string(hide_password=True)
            if self.postgresql
            else str(self.url.database)
        )
        """The address for messages, without a password."""
        if not self.postgresql:
            self._check_file(Path(str(self.url.database)), create)
        self.engine = self._create_engine()
        self._mine = threading.local()
        _OPEN.add(self)
        try:
            _tables.check(self, create=create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        _OPEN.discard(self)
        self.engine.dispose()

    def prepare_file(self) -> None:
        """Switch a new file to write-ahead logging, so that readers continue while one process
        writes.

        See https://sqlite.org/wal.html.
        """
        if self.postgresql:
            return
        with self._convert_errors(), self.engine.connect() as connection:
            driver, end = connection.connection.dbapi_connection, time.monotonic() + self._patience
            while True:  # SQLite does not wait for locks here
                try:
                    driver.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > end:
                        raise self._convert_error(error) from error
                time.sleep(0.01)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield a connection whose reads all see one snapshot."""
        joined = self.joined
        if joined is not None:
            with self._convert_errors():
                yield joined
            return
        with self._convert_errors(), self.engine.connect() as connection:
            options = {"isolation_level": "REPEATABLE READ"} if self.postgresql else {}
            with connection.execution_options(**options).begin():
                connection.info.pop(_run_lookup.SEEN, None)
                yield connection

    @contextmanager
    def begin_write(self, *, alone: bool = True) -> Iterator[Any]:
        """Yield a connection for a write transaction; only one process at a time has one.

        Parameters
        ----------
        alone
            Whether it waits for other writers in PostgreSQL, too, where only those that lock the
            same rows need to.
        """
        joined = self.joined
        if joined is not None:
            try:
                with self._convert_errors():
                    yield joined
            except BaseException:
                self._mine.failed = True
                raise
            return
        with (
            self._convert_errors(),
            self.engine.connect().execution_options(nnpipe_writes=True) as connection,
        ):
            with connection.begin():
                connection.info.pop(_run_lookup.SEEN, None)
                if self.postgresql and alone:
                    import sqlalchemy as sa

                    connection.execute(
                        sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK}
                    )
                yield connection

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine all reads and writes of this thread in the block into one transaction.

        Raises
        ------
        ConfigError
            If a part failed but the block continued: the whole transaction is rolled back.
        """
        if self.joined is not None:
            yield
            return
        with self.begin_write() as connection:
            self._mine.connection, self._mine.failed = connection, False
            try:
                yield
            finally:
                self._mine.connection = None
            if self._mine.failed:
                raise ConfigError(
                    f"{self.shown}: a part of what was to be written together failed; nothing was "
                    f"written"
                )

    @property
    def joined(self) -> Any:
        """The connection of this thread's :meth:`together` block, or ``None`` outside of one."""
        return getattr(self._mine, "connection", None)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert errors of the drivers to errors of nnpipe, in one line."""
        import sqlalchemy.exc

        try:
            yield
        except WrongValue as error:
            raise ArtifactError(f"{self.shown}: {error}") from None
        except sqlite3.Error as error:  # of the beginning of a transaction
            raise self._convert_error(error) from error
        except sqlalchemy.exc.DBAPIError as error:
            raise self._convert_error(error.orig or error) from error
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise ConfigError(f"{self.shown}: {_get_first_line(error)}") from error

    def _convert_error(self, error: BaseException) -> Exception:
        said = _get_first_line(error)
        state = getattr(error, "sqlstate", None)
        if "locked" in said or state == "55P03":
            return ConfigError(
                f"{self.shown}: another process has been writing for more than {self._patience:g} "
                f"s; try again"
            )
        if isinstance(error, sqlite3.DatabaseError) and (
            "malformed" in said or "not a database" in said
        ):
            return ArtifactError(f"{self.shown}: damaged, or no SQLite database ({said})")
        if "readonly" in said:
            return ConfigError(f"{self.shown}: may not be written to")
        return ConfigError(f"{self.shown}: {said}")

    def _check_file(self, path: Path, create: bool) -> None:
        if path.is_dir():
            raise ConfigError(f"{path}: a folder, not the file of a run database")
        if not path.exists():
            if not create:
                raise ConfigError(f"{path}: no such run database")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{path}: cannot be made: {error.strerror or error}") from None

    def _create_engine(self) -> Any:
        import sqlalchemy as sa

        if self.postgresql:
            try:
                import psycopg  # noqa: F401
            except ImportError:
                raise MissingDependency(
                    f"{self.shown}: PostgreSQL needs psycopg: pip install 'nnpipe[postgresql]'"
                ) from None
            engine = sa.create_engine(
                self.url, pool_pre_ping=True, pool_size=2, connect_args={"connect_timeout": 10}
            )
            self._prepare_postgresql(engine)
        else:
            # One connection stays open: when the last one to a file is closed, SQLite copies its
            # log into the file and waits for the disk, which takes as long as the transaction
            # itself.
            engine = sa.create_engine(
                self.url,
                poolclass=sa.pool.QueuePool,
                pool_size=2,
                max_overflow=-1,
                connect_args={
                    "timeout": self._patience,
                    "isolation_level": None,
                    "check_same_thread": False,
                },
                # every use is a transaction, which is committed or rolled back
                pool_reset_on_return=None,
            )
            self._prepare_sqlite(engine)
        return engine

    def _prepare_sqlite(self, engine: Any) -> None:
        import sqlalchemy as sa

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, record: object) -> None:
            connection.execute("PRAGMA trusted_schema = OFF")  # the file may be somebody else's
            if hasattr(connection, "setlimit"):  # Python 3.11
                connection.setlimit(_LIMIT_LENGTH, _LONGEST)
            connection.execute("PRAGMA foreign_keys = ON")
            # committed data survive a power failure
            connection.execute("PRAGMA synchronous = FULL")

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            # A transaction that starts with reads may fail at once when it writes, in spite of the
            # timeout.
            writes = connection.get_execution_options().get("nnpipe_writes")
            # The driver itself: every transaction begins here, and SQLAlchemy would take several
            # times as long.
            connection.connection.dbapi_connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def _prepare_postgresql(self, engine: Any) -> None:
        import sqlalchemy as sa

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, record: Any) -> None:
            record.info["pid"] = os.getpid()
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = {int(self._patience * 1000)}")
            connection.commit()

        @sa.event.listens_for(engine, "checkout")
        def check_process(connection: Any, record: Any, proxy: Any) -> None:
            if record.info["pid"] != os.getpid():
                record.dbapi_connection = proxy.dbapi_connection = None
                raise sa.exc.DisconnectionError(
                    "a connection of the process that this one was forked from"
                )


_OPEN: weakref.WeakSet[Connections] = weakref.WeakSet()


def _close_idle_connections() -> None:
    """Close idle connections before a fork: SQLite's locks belong to one process.

    See https://sqlite.org/howtocorrupt.html.
    """
    for connections in list(_OPEN):
        if not connections.postgresql:
            connections.engine.dispose()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_idle_connections)


def _parse_url(address: str | Path) -> Any:
    try:
        import sqlalchemy as sa
    except ImportError:
        raise MissingDependency(
            "run databases need SQLAlchemy: pip install 'nnpipe[experiment]'"
        ) from None
    text = str(address)
    if "://" not in text:
        if not text or "\0" in text:
            raise ConfigError(
                "the address of a run database is a file or postgresql://user@host/name"
            )
        return sa.URL.create("sqlite", database=text)
    scheme = text.partition("://")[0].lower()
    if scheme not in ("sqlite", "postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(
            f"{scheme}://: a run database is a file of SQLite or postgresql://user@host/name"
        )
    try:
        url = sa.engine.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            f"{scheme}://: this address cannot be read; expected "
            f"postgresql://user:password@host:port/name"
        ) from None
    if scheme == "sqlite":
        if not url.database or url.database == ":memory:" or url.query:
            raise ConfigError(
                "sqlite://: a run database is a file: sqlite:///runs.sqlite, or just runs.sqlite"
            )
        return sa.URL.create("sqlite", database=url.database)
    return url.set(drivername="postgresql+psycopg")


def _get_first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
