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
from nnpipe.core.secret import Variables, hide_command_secrets, reveal_variables
from nnpipe.experiment.settings import read_settings
from nnpipe.storage.storage import open_storage

_LARGEST_SCRIPT = 16 << 20
SETTINGS = frozenset({".yaml", ".yml", ".json"})
"""Suffixes of pipeline and experiment files; any other file is a Python script."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A script, a pipeline file or an experiment file to run, with its arguments and expected
    outputs.

    Parameters
    ----------
    file
        The script, or the file for ``nnpipe run`` or ``nnpipe experiment``.
    arguments
        The arguments after the file on the command line: a script's arguments, a pipeline's
        ``KEY=VALUE``, ...
    outputs
        Files that the job must write, relative to the directory; without any, only its exit status
        is checked.
    directory
        The working directory.
    environment
        Further environment variables.  Their values may be secrets, and are not stored in the run
        database.
    variables
        The names of the variables at submission; read from the run database, never given.
    python
        The interpreter.
    grace
        Seconds for its processes to end by themselves when the job is cancelled.
    send
        Further files that the job needs on another machine.
    storage
        The storage in which script, progress and outputs are published, or None.
    cpus
        Processors that a cluster reserves for it; with 0, Ray runs it on the head node.
    """

    file: Path
    arguments: Sequence[str] = ()
    outputs: Sequence[str] = ()
    directory: Path = field(default_factory=Path.cwd)
    environment: Variables = field(default_factory=dict, repr=False)
    variables: Sequence[str] = ()
    python: str = sys.executable
    grace: float = 10.0
    send: Sequence[Path] = ()
    storage: str | None = None
    cpus: float = 0.0

    @property
    def of_nnpipe(self) -> bool:
        """Whether nnpipe itself runs the file."""
        return self.file.suffix.lower() in SETTINGS

    @property
    def is_pipeline(self) -> bool:
        """Whether the file is a pipeline, which ends with a report, and not a script or an
        experiment.
        """
        return self.of_nnpipe and "experiment" not in read_settings(self.file)

    def check(self) -> None:
        """Raise :class:`ConfigError` if the job cannot run."""
        if not self.file.is_file():
            raise ConfigError(
                f"{self.file}: no such file; a job is a Python script or a pipeline file"
            )
        if not self.directory.is_dir():
            raise ConfigError(f"{self.directory}: no such folder; a job runs in one")
        if not 0 <= self.grace <= 3600:
            raise ConfigError(f"grace: expected 0 to 3600 seconds, not {self.grace:g}")
        if self.cpus < 0:
            raise ConfigError(f"cpus: expected 0 or more, not {self.cpus:g}")
        for name in self.outputs:
            if not name or "\0" in name:
                raise ConfigError("an output has no name")
            if (self.directory / name).is_dir():
                raise ConfigError(f"output {name} is a folder; name the files in it")
        for text in (
            *self.arguments,
            *self.environment,
            *reveal_variables(self.environment).values(),
        ):
            if "\0" in text:
                raise ConfigError("an argument or a variable holds a NUL")
        for number, (word, shown) in enumerate(
            zip(self.arguments, hide_command_secrets(self.arguments), strict=True), 1
        ):
            if word != shown:
                raise ConfigError(
                    f"argument {number} of {self.file.name} holds a password or a token, which "
                    f"every user of a machine "
                    "can read in its list of processes; give it in a variable, --env NAME=VALUE"
                )
        if self.storage is not None:
            open_storage(self.storage)
        if self.of_nnpipe:
            read_settings(self.file)
        else:
            self._parse_script()

    def with_absolute_paths(self) -> JobSpec:
        """Return the same job with absolute paths, so that it can be resumed from another
        folder.
        """
        storage = self.storage
        if storage is not None and "://" not in storage:
            storage = str(Path(storage).expanduser().absolute())
        return dataclasses.replace(
            self,
            file=self.file.absolute(),
            directory=self.directory.absolute(),
            storage=storage,
            send=[path.absolute() for path in self.send],
        )

    def build_command(
        self, file: str, progress: str | None = None, *, again: bool = False
    ) -> list[str]:
        """Return the command line.

        Parameters
        ----------
        file
            The path of the file.
        progress
            The path of the progress file; passed to scripts that have an argument ``--progress``.
        again
            Whether the job is resumed: then scripts that have an argument ``--resume`` get it.
        """
        if self.of_nnpipe:
            command = "run" if self.is_pipeline else "experiment"
            return [self.python, "-m", "nnpipe", command, file, *self.arguments]
        more: list[str] = []
        known = self._find_options()
        given = {argument.partition("=")[0] for argument in self.arguments}
        if progress is not None and "--progress" in known and "--progress" not in given:
            more += ["--progress", progress]
        if again and "--resume" in known and "--resume" not in given:
            more += ["--resume"]
        return [self.python, "-u", file, *self.arguments, *more]

    @property
    def can_resume(self) -> bool:
        """Whether another attempt probably continues where the previous one stopped."""
        return self.of_nnpipe or "--resume" in self._find_options()

    def to_json(self) -> dict[str, Any]:
        """Return the job in its JSON form for the run database, with only the names of its
        variables.
        """
        return {
            "file": str(self.file),
            "arguments": list(self.arguments),
            "outputs": list(self.outputs),
            "directory": str(self.directory),
            "variables": sorted({*self.environment, *self.variables}),
            "python": self.python,
            "grace": self.grace,
            "send": [str(path) for path in self.send],
            "storage": self.storage,
            "cpus": self.cpus,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JobSpec:
        """Make a job from the output of :meth:`to_json`."""
        paths = {"file": Path(value["file"]), "directory": Path(value["directory"])}
        return cls(**{**value, **paths, "send": [Path(path) for path in value["send"]]})

    def _find_options(self) -> set[str]:
        """Return the options that a script declares with argparse; the script is parsed, not
        run.
        """
        try:
            tree = self._parse_script()
        except (ConfigError, OSError):
            return set()
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        return {
            argument.value
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }

    def _parse_script(self) -> ast.Module:
        if self.file.stat().st_size > _LARGEST_SCRIPT:
            raise ConfigError(
                f"{self.file}: larger than {_LARGEST_SCRIPT >> 20} MiB; is it a Python script?"
            )
        try:
            return ast.parse(self.file.read_bytes(), str(self.file))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            where = (
                f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            )
            told = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ConfigError(f"{self.file}{where}: no Python script: {told}") from None
