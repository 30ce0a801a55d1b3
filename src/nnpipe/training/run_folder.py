"""The folder of a run: what its files are called, whose it is, and what lies in it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable, write_text
from nnpipe.training.run_settings import differences, plain

_KINDS = ("checkpoints", "model", "pictures", "profile", "source", "tables", "tensorboard")
_PICTURES, _TABLES = frozenset({".png", ".svg"}), frozenset({".json", ".csv", ".txt"})
_STATES = frozenset({".state"})
_WRITTEN = {
    "checkpoints": _STATES | {".jsonl"}, "pictures": _PICTURES, "tables": _TABLES | {".npz"},
    "tensorboard": frozenset({".run", ".pbtxt"}),
}  # fmt: skip
"""What a run that begins anew removes; all else has names that it writes over."""

_LARGEST = 20_000_000
_MOST = 8  # differences that are named
_NEWER = frozenset({"optimiser", "schedule", "data", "structure"})  # older runs do not tell


@dataclass(frozen=True)
class RunFolder:
    """Names every file of a run's folder; nothing is made before it is written.

    ::

        index.html      the run's page
        run.json        what the run was begun with
        status.json     how it stands
        checkpoints/    what a resumed run needs, with the rows of all epochs, and the best weights
        pictures/       of the callbacks, as PNG
        tables/         of the callbacks, as JSON, CSV, text and arrays (.npz)
        tensorboard/    the events of the whole run, and the embedding projector's files
        model/          the exported model
        profile/        a trace of some steps
        source/         the source that the model was trained by

    Names are made of parts, such as ``("worst", "mnist", "train")``, as :func:`file_name` joins them.

    Attributes
    ----------
    path
        The folder; it need not be there.
    """

    path: Path

    # -- names ----------------------------------------------------------------------------------

    @property
    def page(self) -> Path:
        """The page that shows all of it."""
        return self.path / "index.html"

    @property
    def begun(self) -> Path:
        """What the run was begun with."""
        return self.path / "run.json"

    @property
    def status(self) -> Path:
        """How the run stands; see :func:`~nnpipe.training.run_status.read_status`."""
        return self.path / "status.json"

    @property
    def trace(self) -> Path:
        """The profiler's trace, packed."""
        return self.path / "profile" / "trace.json.gz"

    @property
    def source(self) -> Path:
        """The archive of the source."""
        return self.path / "source" / "source.zip"

    @property
    def onnx(self) -> Path:
        """The exported model."""
        return self.path / "model" / "model.onnx"

    @property
    def events(self) -> Path:
        """TensorBoard's events; it knows them by ``tfevents`` in the name."""
        return self.path / "tensorboard" / "events.out.tfevents.run"

    @property
    def projector(self) -> Path:
        """What tells TensorBoard's embedding projector which files there are; it looks for this very name."""
        return self.path / "tensorboard" / "projector_config.pbtxt"

    def projected(self, name: str, file: str) -> Path:
        """Return a file of an embedding in the projector."""
        return self.path / "tensorboard" / file_name(name) / file

    def checkpoint(self, name: str) -> Path:
        """Return a state file."""
        return self.path / "checkpoints" / name

    def picture(self, *parts: str) -> Path:
        """Return a picture."""
        return self.path / "pictures" / f"{file_name(*parts)}.png"

    def table(self, *parts: str, ending: str = "json") -> Path:
        """Return a table: rows as ``json`` or ``csv``, a text as ``txt``, arrays as ``npz``."""
        return self.path / "tables" / f"{file_name(*parts)}.{ending}"

    # -- whose it is ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise :class:`ConfigError` at once, before anything slow, if no run could be written here."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; a run needs a folder")
        for path in (self.path, self.checkpoint("last.state").parent):
            check_writable(path, folder=True)

    @contextmanager
    def claimed(self, course: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
        """Make the folder and have it for one training, until the block ends.

        What a killed training left half written is removed.  A process that dies gives the folder back.

        Parameters
        ----------
        course
            What the run depends on; it is kept in :attr:`begun`.
        resume
            Whether a run that is there is to be continued; otherwise its checkpoints, pictures,
            tables and events are removed, so that those of two runs are never mixed.

        Raises
        ------
        ConfigError
            If a training is writing there now, if what is there is no run's, or,
            where it is to be continued, of a run that was started with different settings.  Nothing was changed then.
        """
        known = plain(dict(course))
        self._check_foreign()
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(self.path))
                # With a checkpoint, that one is asked by whoever reads it: it knows more exactly.
                if resume and self.begun.exists() and not self.checkpoint("last.state").exists():
                    check_same_settings(self.begun, self._stored(), known)
                for kind in ("", *_KINDS):
                    for path in (self.path / kind).glob(".*.partial*"):
                        path.unlink(missing_ok=True)
                if not resume:
                    for kind, endings in _WRITTEN.items():
                        for path in _inside(self.path / kind, endings):
                            path.unlink(missing_ok=True)
                if not (resume and self.begun.exists()):
                    write_text(self.begun, json.dumps(known, indent=1, sort_keys=True) + "\n")
            except OSError as error:
                raise ConfigError(f"{self.path}: cannot be written: {error.strerror or error}") from None
            yield

    def _check_foreign(self) -> None:
        """Raise where files would be written over that no training has written."""
        self.check()
        if self.begun.exists() or _inside(self.path / "checkpoints", _STATES):
            return
        there = [kind for kind in _KINDS if any((self.path / kind).glob("*"))]
        if self.page.exists():
            there.insert(0, self.page.name)
        if there:
            raise ConfigError(
                f"{self.path} holds {', '.join(there)} of something else; a run would write there: give a new folder"
            )

    def _stored(self) -> dict[str, Any]:
        try:
            if self.begun.stat().st_size > _LARGEST:
                raise ValueError("it is too large")
            found = json.loads(self.begun.read_text("utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no object")
        except ValueError as error:
            raise ConfigError(f"{self.begun} is damaged: {error}; use another folder, or resume=False") from None
        return found

    # -- what lies in it ------------------------------------------------------------------------

    def pictures(self) -> list[Path]:
        """Return the pictures, by name."""
        return _inside(self.path / "pictures", _PICTURES)

    def tables(self) -> list[Path]:
        """Return the tables that can be read as text, by name."""
        return _inside(self.path / "tables", _TABLES)

    def arrays(self, *parts: str) -> list[Path]:
        """Return the files of arrays whose names begin with these parts, by name."""
        own = _inside(self.path / "tables", frozenset({".npz"}))
        return [path for path in own if path.stem.startswith(file_name(*parts))]

    def others(self) -> list[Path]:
        """Return all other files but the page itself; hidden ones are half-written or nobody's business."""
        found: list[Path] = []
        for root, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += [Path(root) / name for name in sorted(names) if not name.startswith(".")]
        shown = {self.page, *self.pictures(), *self.tables()}
        return [path for path in found if path not in shown]


def file_name(*parts: str) -> str:
    """Join names to that of a file: what is neither a letter, a digit, a dot nor a dash becomes a dash."""
    return "-".join("".join(c if c.isalnum() or c in "-_." else "-" for c in part) for part in parts)


def check_same_settings(path: Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError`, naming what differs, unless a run is continued as it was begun."""
    wrong = list(differences(plain(dict(stored)), plain(dict(now)), _NEWER))
    if wrong:
        told = [f"{name} {_change(was, comes)}" for name, was, comes in wrong[:_MOST]]
        more = f", and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise ConfigError(
            f"{path}: this run was started with different settings: {', '.join(told)}{more}; "
            "use another folder, or begin anew here with resume=False (--no-resume)"
        )


def _change(was: Any, comes: Any) -> str:
    if was is None:
        return f"was not there and is {comes!r}"
    return f"was {was!r} and is no more" if comes is None else f"was {was!r} and is {comes!r}"


def _inside(folder: Path, endings: frozenset[str]) -> list[Path]:
    return sorted(
        path for path in folder.glob("*") if path.suffix in endings and path.is_file() and path.name[0] != "."
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out.

    The lock belongs to this process alone: it is not handed to workers, and ends
    with the process, however that ends.  Where a system or a file system has no
    such locks there is none.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(
                    f"{folder}: another training is writing into it; wait for it, or give another folder"
                ) from None
        yield
