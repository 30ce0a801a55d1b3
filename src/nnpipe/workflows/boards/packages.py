"""The packages of a server for any board, gathered on this machine: a board needs neither pip
nor a way to PyPI.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import nnpipe
from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError
from nnpipe.core.runtime import Runtime

_OLDEST_GLIBC = 17  # of manylinux (PEP 600)
_FORMER = {17: "manylinux2014", 12: "manylinux2010"}
_EXTRA = re.compile(
    r"""\s*;\s*extra\s*==\s*['"]([\w-]+)['"]|\s+and\s+extra\s*==\s*['"]([\w-]+)['"]"""
)
_NAME = re.compile(r"[\w.-]+")

# A second copy of ONNX Runtime for programs in C, what only compilers of extensions need, and tests
# of packages.
_LEFT_OUT = ("__pycache__", "tests", "include", "bin", "*.pyi", "libonnxruntime.so.*")


@dataclass(frozen=True)
class Platform:
    """What wheels must fit.

    Attributes
    ----------
    machine
        The processor, such as ``aarch64``.
    python
        Major and minor version of Python.
    glibc
        Version of the C library; None where that is musl.
    """

    machine: str
    python: tuple[int, int]
    glibc: tuple[int, int] | None

    def tags(self) -> tuple[str, ...]:
        """Return the platforms of wheels that run here, the newest first (PEP 600, PEP 656)."""
        if self.glibc is None:
            return tuple(f"musllinux_1_{minor}_{self.machine}" for minor in (2, 1))
        found = []
        for minor in range(self.glibc[1], _OLDEST_GLIBC - 1, -1):
            found.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _FORMER:
                found.append(f"{_FORMER[minor]}_{self.machine}")
        return tuple(found)

    def __str__(self) -> str:
        library = "musl" if self.glibc is None else "glibc {}.{}".format(*self.glibc)
        return f"{self.machine}, {library}, Python {self.python[0]}.{self.python[1]}"


def list_requirements(runtime: type[Runtime]) -> tuple[str, ...]:
    """Return what a server of a runtime needs beside nnpipe itself, as pip takes it.

    Raises
    ------
    ConfigError
        If the runtime is of another package, or nnpipe's own requirements are not known.
    """
    extra = runtime.install.partition("[")[2].rstrip("]")
    if runtime.requires and not extra:
        raise ConfigError(
            f"{runtime.__name__}: which packages it needs is not known; name them (--package)"
        )
    try:
        declared = importlib.metadata.requires("nnpipe") or []
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            "nnpipe is not installed here as a package, so its requirements are not known"
        ) from None
    found: dict[str, list[str]] = {}
    for line in declared:
        match = _EXTRA.search(line)
        found.setdefault((match[1] or match[2]) if match else "", []).append(
            _EXTRA.sub("", line).strip()
        )
    wanted = runtime.target_packages
    chosen = (
        [line for line in found.get(extra, ()) if not wanted or _parse_package_name(line) in wanted]
        if extra
        else []
    )
    return tuple(found.get("", ())) + tuple(chosen)


def download_packages(
    platform: Platform, needed: Sequence[str], folder: Path, *, index: Sequence[str] = ()
) -> None:
    """Put packages for a platform, and nnpipe, into an empty folder, from which Python imports
    them.

    Parameters
    ----------
    platform
        What the packages must fit.
    needed
        Requirements as pip takes them; none if the board has its packages already.
    folder
        Where they come to; it need not exist.
    index
        Further options of pip, such as ``--find-links FOLDER`` or ``--constraint FILE``.

    Raises
    ------
    MissingDependency
        If there is no pip here.
    NNPipeError
        If a package does not exist for this platform; the message is pip's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if needed:
        # To look for a module of that name hides setuptools' distutils from later compilations,
        # until Python 3.12.
        if not any(importlib.metadata.distributions(name="pip")):
            raise MissingDependency(
                "packages are gathered by pip, which is not installed here: python -m ensurepip"
            )
        done = subprocess.run(
            [*build_pip_command(platform, folder), *index, *needed], capture_output=True, text=True
        )
        if done.returncode:
            raise NNPipeError(f"packages for {platform}: {_find_pip_error(done.stderr)}")
        _remove_unneeded_files(folder)
    source = Path(nnpipe.__file__).parent
    shutil.copytree(
        source, folder / "nnpipe", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )


def build_pip_command(platform: Platform, folder: Path) -> list[str]:
    """Return the call of pip that gathers packages for a platform, without the packages."""
    return [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--upgrade",
        "--target",
        str(folder),
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        f"{platform.python[0]}.{platform.python[1]}",
        *(word for tag in platform.tags() for word in ("--platform", tag)),
    ]


def pack_folder(folder: Path) -> bytes:
    """Return the contents of a folder as a compressed archive, the same bytes for the same
    files.
    """
    made = io.BytesIO()
    # The time that gzip writes by itself would make other bytes.
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1, mtime=0) as compressed:
        _write_archive(folder, cast("IO[bytes]", compressed))
    return made.getvalue()


def _write_archive(folder: Path, stream: IO[bytes]) -> None:
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(
                path, path.relative_to(folder).as_posix(), recursive=False, filter=_clear_owner
            )


def _clear_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _remove_unneeded_files(folder: Path) -> None:
    for pattern in _LEFT_OUT:
        for path in sorted(folder.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _parse_package_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0].lower().replace("_", "-") if match else ""


def _find_pip_error(said: str) -> str:
    """Return pip's last error."""
    errors = [
        line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")
    ]
    return errors[-1] if errors else said.strip().splitlines()[-1] if said.strip() else "pip failed"
