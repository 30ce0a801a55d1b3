"""A server whose processor alone is emulated: a process of this machine, with Python and
packages for aarch64.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import debian

import nnpipe
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.workflows.boards.packages import Platform, download_packages, list_requirements

PLATFORM = Platform("aarch64", debian.PYTHON_VERSION, debian.GLIBC)


def packages(folder: Path, runtime: str) -> Path:
    """Return the folder with the packages of a runtime, which are gathered if it does not exist."""
    made = folder / f"packages-{runtime}"
    if not made.exists():
        partial = folder / f"packages-{runtime}.{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        download_packages(PLATFORM, list_requirements(find(runtime, Runtime)), partial)
        partial.replace(made)
    return made


def command(system: Path, packages: Path) -> list[str]:
    """Return the call of Python in the emulator, with this nnpipe and not with the one beside
    the packages.
    """
    source = Path(nnpipe.__file__).parents[1]
    compiled = str(packages.with_name("compiled"))
    told = {
        "PYTHONPATH": f"{source}:{packages}",
        "OMP_NUM_THREADS": "1",
        "PYTHONPYCACHEPREFIX": compiled,
    }
    words = [word for name, value in told.items() for word in ("-E", f"{name}={value}")]
    return ["qemu-aarch64", "-L", str(system), *words, str(system / "usr/bin/python3.11"), "-s"]


def serve(system: Path, packages: Path, runtime: str, port: int, words: Sequence[str]) -> int:
    """Become the server."""
    own = [
        "-m",
        "nnpipe",
        "inference_server",
        "NetworkProtocol",
        find(runtime, Runtime).get_dotted_path(),
    ]
    whole = [*command(system, packages), *own, "--port", str(port), *words]
    os.execvp(whole[0], whole)
    raise AssertionError("the process is the server now")
