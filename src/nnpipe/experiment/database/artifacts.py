"""Artifacts of runs, as files named by their digests.

A file is stored as ``ab/abcdef...SUFFIX``, named by the SHA-256 of its content,
so that a file shared by several runs is stored once.  Nothing is pickled: states
are state files, arrays are HDF5.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.files import compute_sha256, replace_atomically
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database._values import check_text
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.records import ArtifactRecord
from nnpipe.experiment.state_file import from_bytes, to_bytes

_STATE = "run artifact"
_ARRIVING = ".arriving"
_LONG_AGO = 24 * 3600.0  # seconds


class Artifacts:
    """The artifacts of a database's runs.

    Parameters
    ----------
    connections
        The database.
    store
        The folder of the files; ``None`` if none was given.
    """

    def __init__(self, connections: Connections, store: Path | None) -> None:
        self._connections = connections
        self._folder = store

    @property
    def store(self) -> Path:
        """The folder of the files.

        Raises
        ------
        ConfigError
            If none was given.
        """
        if self._folder is None:
            raise ConfigError(
                f"{self._connections.shown}: name the folder of its artifacts (store=, --store)"
            )
        return self._folder

    def put_state(self, run: str, name: str, state: Mapping[str, Any]) -> ArtifactRecord:
        """Store a state; it replaces the run's artifact of this name.

        See :func:`~nnpipe.experiment.state_file.write_state` for what a state may hold.
        """
        return self._put(run, name, "state", ".safetensors", to_bytes(state, kind=_STATE))

    def get_state(self, run: str, name: str) -> dict[str, Any]:
        """Return a state.

        Raises
        ------
        ConfigError
            If the run has no state of this name.
        ArtifactError
            If the file is missing, damaged, or not a state.
        """
        path = self.path(run, name, kind="state")
        try:
            return from_bytes(path.read_bytes(), kind=_STATE)
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from None

    def put_arrays(
        self, run: str, name: str, arrays: Mapping[str, npt.ArrayLike]
    ) -> ArtifactRecord:
        """Store arrays by name as an HDF5 file, compressed.

        Raises
        ------
        ConfigError
            If an array holds objects.
        MissingDependency
            If h5py is not installed.
        """
        h5py = _import_h5py()
        content = io.BytesIO()
        with h5py.File(content, "w", track_order=True) as file:
            for key, value in arrays.items():
                array = np.asarray(value)
                if array.dtype.kind not in "biufc":
                    raise ConfigError(
                        f"{name}: {key}: an array of {array.dtype} cannot be stored; numbers can"
                    )
                packing = {"compression": "gzip", "shuffle": True} if array.size > 1 else {}
                # Numbered: HDF5 could read a name as a path.
                stored = file.create_dataset(
                    str(len(file)), data=array, track_times=False, **packing
                )
                stored.attrs["name"] = check_text(key, name)
        return self._put(run, name, "arrays", ".h5", content.getvalue())

    def get_arrays(self, run: str, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return arrays by name.

        Raises
        ------
        ConfigError
            If the run has no arrays of this name.
        ArtifactError
            If the file is missing, damaged, or holds no arrays.
        """
        path = self.path(run, name, kind="arrays")
        h5py = _import_h5py()
        try:
            with h5py.File(path, "r") as file:
                return {str(item.attrs["name"]): item[()] for item in file.values()}
        except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path}: no file of arrays: {error}") from None

    def put_file(self, run: str, name: str, path: str | Path) -> ArtifactRecord:
        """Store a copy of a file.

        Raises
        ------
        ConfigError
            If the file cannot be read.
        """
        path = Path(path)
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
        return self._put(run, name, "file", path.suffix[:20], path)

    def path(self, run: str, name: str, *, kind: str | None = None) -> Path:
        """Check that the file of an artifact is unchanged, and return its path.

        Raises
        ------
        ConfigError
            If the run has no artifact of this name, or it is of another kind.
        ArtifactError
            If the file is missing or damaged.
        """
        found = {record.name: record for record in self.list(run)}
        if name not in found:
            raise ConfigError(
                f"run {run[:40]} has no artifact {name[:80]!r}; it has {', '.join(found) or 'none'}"
            )
        record = found[name]
        if kind is not None and record.kind != kind:
            raise ConfigError(f"run {run[:40]}: {name!r} is of the kind {record.kind}, not {kind}")
        path = self._get_file_path(record.digest, record.suffix)
        if not path.is_file():
            raise ArtifactError(f"{path}: the file of artifact {name!r} is not in the store")
        if compute_sha256(path) != record.digest:
            raise ArtifactError(
                f"{path}: damaged: the content of artifact {name!r} is not what was stored"
            )
        return path

    def list(self, run: str) -> list[ArtifactRecord]:
        """Return the artifacts of a run, sorted by name."""
        import sqlalchemy as sa

        table = get_tables().artifacts
        names = ("name", "kind", "digest", "size", "suffix", "created")
        with self._connections.reading() as connection:
            query = (
                sa.select(table)
                .where(table.c.run == _run_lookup.find_identity(connection, run))
                .order_by(table.c.name)
            )
            return [
                ArtifactRecord(**{n: getattr(row, n) for n in names})
                for row in connection.execute(query)
            ]

    def remove(self, run: str, name: str) -> None:
        """Remove an artifact, and its file unless another artifact refers to it."""
        import sqlalchemy as sa

        self._check_alone()
        table = get_tables().artifacts
        with self._connections.begin_write() as connection:
            mine = (table.c.run == _run_lookup.find_identity(connection, run), table.c.name == name)
            found = connection.execute(
                sa.select(table.c.digest, table.c.suffix).where(*mine)
            ).first()
            connection.execute(table.delete().where(*mine))
        if found is not None:
            self.collect([(found.digest, found.suffix)])

    def collect(self, candidates: Iterable[tuple[str, str]] | None = None) -> int:
        """Remove files that no run refers to.

        Parameters
        ----------
        candidates
            Digests and suffixes of the files to check; by default all files of the store.

        Returns
        -------
        int
            Number of bytes freed.
        """
        import sqlalchemy as sa

        if self._folder is None or not self._folder.is_dir():
            return 0
        self._check_alone()
        table, freed = get_tables().artifacts, 0
        # While this process holds the write lock, no other can begin to refer to a file.
        with self._connections.begin_write() as connection:
            if candidates is None:
                used = set(connection.scalars(sa.select(table.c.digest)))
                paths = [
                    p for p in self._folder.glob("[0-9a-f][0-9a-f]/*") if p.name[:64] not in used
                ]
                paths = [p for p in paths if len(p.name) >= 64 or _is_abandoned(p)]
            else:
                query = sa.select(table.c.digest).limit(1)
                gone = [
                    c
                    for c in candidates
                    if connection.scalar(query.where(table.c.digest == c[0])) is None
                ]
                paths = [self._get_file_path(*one) for one in gone]
            for path in paths:
                if path.is_file():
                    freed += path.stat().st_size
                    path.unlink(missing_ok=True)
        return freed

    def _put(
        self, run: str, name: str, kind: str, suffix: str, content: bytes | Path
    ) -> ArtifactRecord:
        self._check_alone()
        check_text(name, "artifact")
        digest = (
            hashlib.sha256(content).hexdigest()
            if isinstance(content, bytes)
            else compute_sha256(content)
        )
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        record = ArtifactRecord(
            name=name, kind=kind, digest=digest, size=size, suffix=suffix, created=time.time()
        )
        place = self._get_file_path(digest, suffix)
        arrived = place.with_name(f".{secrets.token_hex(8)}{_ARRIVING}")
        try:
            while True:
                # Large files are written before taking the write lock, for which others wait.
                sound = (
                    place.is_file()
                    and place.stat().st_size == size
                    and compute_sha256(place) == digest
                )
                if not sound:
                    _write(arrived, content, digest)
                before = self._enter(run, record, place, None if sound else arrived)
                if before is not None:
                    break
        finally:
            arrived.unlink(missing_ok=True)
        self.collect(one for one in before if one[0] != digest)
        return record

    def _enter(
        self, run: str, record: ArtifactRecord, place: Path, arrived: Path | None
    ) -> tuple[tuple[str, str], ...] | None:
        """Record a file and move it to its place; return earlier files of this name, or ``None``
        if it has gone.
        """
        import sqlalchemy as sa

        table = get_tables().artifacts
        with self._connections.begin_write() as connection:
            identity = _run_lookup.find_identity(connection, run)
            if arrived is None and not place.is_file():
                return None  # removed by collect() since it was checked
            mine = (table.c.run == identity, table.c.name == record.name)
            query = sa.select(table.c.digest, table.c.suffix).where(*mine)
            before = tuple((row.digest, row.suffix) for row in connection.execute(query))
            connection.execute(table.delete().where(*mine))
            connection.execute(table.insert(), {"run": identity, **dataclasses.asdict(record)})
            if arrived is not None:
                arrived.replace(place)
            return before

    def _check_alone(self) -> None:
        """Raise :class:`ConfigError` within a transaction: moving a file cannot be rolled back."""
        if self._connections.joined is not None:
            raise ConfigError(
                "artifacts are stored and removed before or after what is written together, not "
                "within"
            )

    def _get_file_path(self, digest: str, suffix: str) -> Path:
        return self.store / digest[:2] / f"{digest}{suffix}"


def _is_abandoned(path: Path) -> bool:
    """Return whether a temporary file is so old that its writer must have ended."""
    return path.name.endswith(_ARRIVING) and time.time() - path.stat().st_mtime > _LONG_AGO


def _write(place: Path, content: bytes | Path, digest: str) -> None:
    try:
        with replace_atomically(place) as temporary:
            if isinstance(content, bytes):
                temporary.write_bytes(content)
            else:
                shutil.copyfile(content, temporary)
                if compute_sha256(temporary) != digest:
                    raise ConfigError(f"{content}: changed while it was stored")
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written: {error.strerror or error}") from None


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingDependency(
            "arrays are stored with h5py: pip install 'nnpipe[experiment]'"
        ) from None
    return h5py
