"""The folder of a run: the names of its files, its lock, and the files in it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable, write_text
from nnpipe.training.run_settings import iter_differences, to_json_value

_KINDS = ("checkpoints", "model", "pictures", "profile", "source", "tables", "tensorboard")
_PICTURES, _TABLES = frozenset({".png", ".svg"}), frozenset({".json", ".csv", ".txt"})
_STATES = frozenset({".state"})
_WRITTEN = {
    "checkpoints": _STATES | {".jsonl"},
    "pictures": _PICTURES,
    "tables": _TABLES | {".npz"},
    "tensorboard": frozenset({".run", ".pbtxt"}),
}
"""The files that a new run removes; it overwrites all others."""

_LARGEST = 20_000_000
_MOST = 8  # differences that a message names
# older runs did not store these
_NEWER = frozenset({"optimiser", "schedule", "data", "structure", "channels_last"})


@dataclass(frozen=True)
class RunFolder:
    """Names every file of a run's folder; nothing is created before it is written.

    ::

        index.html      the run's page
        run.json        the settings that the run was begun with
        status.json     the run's status
        checkpoints/    the state that a resumed run needs, the rows of all epochs, and the best weights
        pictures/       pictures of the callbacks, as PNG
        tables/         tables of the callbacks, as JSON, CSV, text and arrays (.npz)
        tensorboard/    the events of the whole run, and files of the embedding projector
        model/          the exported model
        profile/        the profiler's trace of some steps
        source/         the source code that trained the model

    Names of files are made of parts, such as ``("worst", "mnist", "train")``, which
    :func:`make_file_name` joins.

    Attributes
    ----------
    path
        The folder; it need not exist.
    """

    path: Path

    # -- names ----------------------------------------------------------------------------------

    @property
    def page(self) -> Path:
        """The page that shows the run."""
        return self.path / "index.html"

    @property
    def begun(self) -> Path:
        """The settings that the run was begun with."""
        return self.path / "run.json"

    @property
    def status(self) -> Path:
        """The run's status; see :func:`~nnpipe.training.run_status.read_status`."""
        return self.path / "status.json"

    @property
    def trace(self) -> Path:
        """The profiler's trace, compressed."""
        return self.path / "profile" / "trace.json.gz"

    @property
    def source(self) -> Path:
        """The archive of the source code."""
        return self.path / "source" / "source.zip"

    @property
    def onnx(self) -> Path:
        """The exported model."""
        return self.path / "model" / "model.onnx"

    @property
    def events(self) -> Path:
        """The events for TensorBoard, which finds them by ``tfevents`` in the name."""
        return self.path / "tensorboard" / "events.out.tfevents.run"

    @property
    def projector(self) -> Path:
        """The configuration of TensorBoard's embedding projector, which looks for exactly this
        name.
        """
        return self.path / "tensorboard" / "projector_config.pbtxt"

    def get_projector_path(self, name: str, file: str) -> Path:
        """Return the path of an embedding's file for the projector."""
        return self.path / "tensorboard" / make_file_name(name) / file

    def checkpoint(self, name: str) -> Path:
        """Return the path of a state file."""
        return self.path / "checkpoints" / name

    def picture(self, *parts: str) -> Path:
        """Return the path of a picture."""
        return self.path / "pictures" / f"{make_file_name(*parts)}.png"

    def table(self, *parts: str, ending: str = "json") -> Path:
        """Return the path of a table: rows as ``json`` or ``csv``, text as ``txt``, arrays as
        ``npz``.
        """
        return self.path / "tables" / f"{make_file_name(*parts)}.{ending}"

    # -- whose it is ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise :class:`ConfigError` if no run can be written here; call it before anything
        slow.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; a run needs a folder")
        for path in (self.path, self.checkpoint("last.state").parent):
            check_writable(path, folder=True)

    @contextmanager
    def lock_for_training(self, course: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
        """Create the folder and lock it for one training until the block ends.

        Partly written files of a killed training are removed.  If a process dies, its lock ends.

        Parameters
        ----------
        course
            The settings on which the run depends; they are stored in :attr:`begun`.
        resume
            Whether to continue an existing run; otherwise its checkpoints, pictures, tables
            and events are removed, so that those of two runs are never mixed.

        Raises
        ------
        ConfigError
            If another training is writing there, if the folder holds files that no training wrote,
            or if a run that should be continued was started with different settings.  Nothing has
            been changed then.
        """
        known = to_json_value(dict(course))
        self._check_foreign()
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_lock_folder(self.path))
                # If there is a checkpoint, its reader checks this more exactly.
                if resume and self.begun.exists() and not self.checkpoint("last.state").exists():
                    check_same_settings(self.begun, self._read_settings(), known)
                for kind in ("", *_KINDS):
                    for path in (self.path / kind).glob(".*.partial*"):
                        path.unlink(missing_ok=True)
                if not resume:
                    for kind, endings in _WRITTEN.items():
                        for path in _list_files(self.path / kind, endings):
                            path.unlink(missing_ok=True)
                if not (resume and self.begun.exists()):
                    write_text(self.begun, json.dumps(known, indent=1, sort_keys=True) + "\n")
            except OSError as error:
                raise ConfigError(
                    f"{self.path}: cannot be written: {error.strerror or error}"
                ) from None
            yield

    def _check_foreign(self) -> None:
        """Raise :class:`ConfigError` if files would be overwritten that no training has written."""
        self.check()
        if self.begun.exists() or _list_files(self.path / "checkpoints", _STATES):
            return
        there = [kind for kind in _KINDS if any((self.path / kind).glob("*"))]
        if self.page.exists():
            there.insert(0, self.page.name)
        if there:
            raise ConfigError(
                f"{self.path} holds {', '.join(there)} of something else; a run would write there: "
                f"give a new folder"
            )

    def _read_settings(self) -> dict[str, Any]:
        try:
            if self.begun.stat().st_size > _LARGEST:
                raise ValueError("it is too large")
            found = parse_json(self.begun.read_text("utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no object")
        except ValueError as error:
            raise ConfigError(
                f"{self.begun} is damaged: {error}; use another folder, or resume=False"
            ) from None
        return found

    # -- what lies in it ------------------------------------------------------------------------

    def pictures(self) -> list[Path]:
        """Return the paths of the pictures, sorted by name."""
        return _list_files(self.path / "pictures", _PICTURES)

    def tables(self) -> list[Path]:
        """Return the paths of the tables that are text, sorted by name."""
        return _list_files(self.path / "tables", _TABLES)

    def arrays(self, *parts: str) -> list[Path]:
        """Return the paths of the files of arrays whose names begin with these parts, sorted by
        name.
        """
        own = _list_files(self.path / "tables", frozenset({".npz"}))
        return [path for path in own if path.stem.startswith(make_file_name(*parts))]

    def list_others(self) -> list[Path]:
        """Return the paths of all other files, without the page itself and hidden files, which
        may be incomplete.
        """
        found: list[Path] = []
        for root, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += [Path(root) / name for name in sorted(names) if not name.startswith(".")]
        shown = {self.page, *self.pictures(), *self.tables()}
        return [path for path in found if path not in shown]


def make_file_name(*parts: str) -> str:
    """Join parts to the name of a file; anything but a letter, digit, dot or dash becomes a
    dash.
    """
    return "-".join(
        "".join(c if c.isalnum() or c in "-_." else "-" for c in part) for part in parts
    )


def check_same_settings(path: Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` naming the differences if a run was begun with other settings."""
    # older runs stored their number
    stored = {name: value for name, value in stored.items() if name != "processes"}
    wrong = list(iter_differences(to_json_value(stored), to_json_value(dict(now)), _NEWER))
    if wrong:
        told = [f"{name} {_describe_change(was, comes)}" for name, was, comes in wrong[:_MOST]]
        more = f", and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise ConfigError(
            f"{path}: this run was started with different settings: {', '.join(told)}{more}; "
            "use another folder, or begin anew here with resume=False (--no-resume)"
        )


def _describe_change(was: Any, comes: Any) -> str:
    if was is None:
        return f"was not there and is {comes!r}"
    return f"was {was!r} and is no more" if comes is None else f"was {was!r} and is {comes!r}"


def _list_files(folder: Path, endings: frozenset[str]) -> list[Path]:
    return sorted(
        path
        for path in folder.glob("*")
        if path.suffix in endings and path.is_file() and path.name[0] != "."
    )


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes.

    The lock belongs to this process only: workers do not inherit it, and it ends
    with the process in any case.  If the system or the file system has no such
    locks, the folder is not locked.
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
                    f"{folder}: another training is writing into it; wait for it, or give another "
                    f"folder"
                ) from None
        yield
