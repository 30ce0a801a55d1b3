"""Which processor a file of machine code was compiled for, and whether the one here can run it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.sealed import SealedFile

MACHINE, FEATURES = "machine", "features"
"""Under these names a file notes the kind of processor and the instructions that it was compiled for."""


def machine(triple: str = "") -> str:
    """Name the kind of processor that a triple is for, or the one here."""
    name = (triple.partition("-")[0] or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def check_processor(file: SealedFile, path: Path, features_here: Callable[[], Iterable[str]]) -> None:
    """Refuse code for another processor, which would end the process.

    Parameters
    ----------
    file, path
        The code, and where it lies.
    features_here
        Returns the instruction sets of this processor; nothing where these are not known.

    Raises
    ------
    ArtifactError
        Naming the file and what this processor lacks.
    """
    wanted = file.notes.get(MACHINE)
    if wanted != machine():
        raise ArtifactError(f"{path}: compiled for {wanted} processors, this one is {machine()}; compile it anew")
    needed = set(file.notes.get(FEATURES) or ())
    here = set(features_here()) if needed else set()
    if here and not needed <= here:
        raise ArtifactError(
            f"{path}: compiled for a processor with {', '.join(sorted(needed - here)[:5])}, which this one lacks; "
            "compile it here or with --target generic"
        )
