"""The specification of a job, checked before anything is started."""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import read_settings

_LARGEST_SCRIPT = 16 << 20
SETTINGS = frozenset({".yaml", ".yml", ".json"})
"""Endings of pipeline and experiment files; all else is a Python script."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A script, a pipeline file or an experiment file, and what shows that it did its work.

    Parameters
    ----------
    file
        The script, or the file that ``nnpipe run`` or ``nnpipe experiment`` takes.
    arguments
        What follows it on the command line: a script's arguments, a pipeline's ``KEY=VALUE``, ...
    outputs
        Files that it must write, relative to the directory; without any, its exit status alone tells.
    directory
        Where it runs.
    environment
        Further environment variables.  Their values may be secrets, and stay out of the run database.
    variables
        The names of those that it had when it was submitted; read from the run database, never given.
    python
        The interpreter.
    grace
        Seconds that its processes have to end by themselves when it is cancelled.
    send
        Further files that it needs, where it runs on another machine.
    storage
        Where script, progress and outputs are published; None for nowhere.
    """

    file: Path
    arguments: Sequence[str] = ()
    outputs: Sequence[str] = ()
    directory: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Sequence[str] = ()
    python: str = sys.executable
    grace: float = 10.0
    send: Sequence[Path] = ()
    storage: str | None = None

    @property
    def of_nnpipe(self) -> bool:
        """Whether nnpipe itself carries it out."""
        return self.file.suffix.lower() in SETTINGS

    @property
    def is_pipeline(self) -> bool:
        """Whether it is a pipeline, which ends with a report; not a script, nor an experiment."""
        return self.of_nnpipe and "experiment" not in read_settings(self.file)

    def check(self) -> None:
        """Raise :class:`ConfigError` for what cannot work."""
        if not self.file.is_file():
            raise ConfigError(f"{self.file}: no such file; a job is a Python script or a pipeline file")
        if not self.directory.is_dir():
            raise ConfigError(f"{self.directory}: no such folder; a job runs in one")
        if not 0 <= self.grace <= 3600:
            raise ConfigError(f"grace: expected 0 to 3600 seconds, not {self.grace:g}")
        for name in self.outputs:
            if not name or "\0" in name:
                raise ConfigError("an output has no name")
            if (self.directory / name).is_dir():
                raise ConfigError(f"output {name} is a folder; name the files in it")
        for text in (*self.arguments, *self.environment, *self.environment.values()):
            if "\0" in text:
                raise ConfigError("an argument or a variable holds a NUL")
        if self.of_nnpipe:
            read_settings(self.file)
        else:
            self._tree()

    def anywhere(self) -> JobSpec:
        """Return the same work with whole paths, for whoever goes on with it from another folder."""
        storage = self.storage
        if storage is not None and "://" not in storage:
            storage = str(Path(storage).expanduser().absolute())
        return dataclasses.replace(
            self, file=self.file.absolute(), directory=self.directory.absolute(), storage=storage,
            send=[path.absolute() for path in self.send],
        )  # fmt: skip

    def command(self, file: str, progress: str | None = None, *, again: bool = False) -> list[str]:
        """Return the command line.

        Parameters
        ----------
        file
            Where the file is.
        progress
            Where progress goes; for scripts that have an argument ``--progress``.
        again
            Whether the job is gone on with: scripts that have an argument ``--resume`` get it.
        """
        if self.of_nnpipe:
            command = "run" if self.is_pipeline else "experiment"
            return [self.python, "-m", "nnpipe", command, file, *self.arguments]
        more: list[str] = []
        known = self._flags()
        given = {argument.partition("=")[0] for argument in self.arguments}
        if progress is not None and "--progress" in known and "--progress" not in given:
            more += ["--progress", progress]
        if again and "--resume" in known and "--resume" not in given:
            more += ["--resume"]
        return [self.python, "-u", file, *self.arguments, *more]

    @property
    def can_resume(self) -> bool:
        """Whether a further attempt goes on where the one before stopped, as far as can be seen."""
        return self.of_nnpipe or "--resume" in self._flags()

    def to_json(self) -> dict[str, Any]:
        """Return it for the run database; of its environment the names alone."""
        return {
            "file": str(self.file), "arguments": list(self.arguments), "outputs": list(self.outputs),
            "directory": str(self.directory), "variables": sorted({*self.environment, *self.variables}),
            "python": self.python, "grace": self.grace, "send": [str(path) for path in self.send],
            "storage": self.storage,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JobSpec:
        """Read what :meth:`to_json` gave."""
        paths = {"file": Path(value["file"]), "directory": Path(value["directory"])}
        return cls(**{**value, **paths, "send": [Path(path) for path in value["send"]]})

    def _flags(self) -> set[str]:
        """Find the options that a script declares with argparse; it is read, not run."""
        try:
            tree = self._tree()
        except (ConfigError, OSError):
            return set()
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        return {
            argument.value
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }

    def _tree(self) -> ast.Module:
        if self.file.stat().st_size > _LARGEST_SCRIPT:
            raise ConfigError(f"{self.file}: larger than {_LARGEST_SCRIPT >> 20} MiB; is it a Python script?")
        try:
            return ast.parse(self.file.read_bytes(), str(self.file))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            told = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ConfigError(f"{self.file}{where}: no Python script: {told}") from None
