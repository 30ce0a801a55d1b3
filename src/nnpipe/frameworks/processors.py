"""The processor that a file of machine code was compiled for, and the check that this one can
run it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.sealed import SealedFile

MACHINE, FEATURES = "machine", "features"
"""Keys of the notes in a file that state the processor architecture and the instruction sets it
was compiled for.
"""


def get_machine(triple: str = "") -> str:
    """Return the processor architecture of a triple, or of this machine without one."""
    name = (triple.partition("-")[0] or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def is_this_machine(target: str) -> bool:
    """Return whether a compiler's target, as artifacts state it, is this kind of machine.

    Parameters
    ----------
    target
        ``"cpu"``, ``"native"`` or ``"generic"``, which are any or this one; a triple, whose
        architecture is compared; or the name of an accelerator.
    """
    return target in ("cpu", "native", "generic") or get_machine(target) == get_machine()


def check_processor(
    file: SealedFile, path: Path, features_here: Callable[[], Iterable[str]]
) -> None:
    """Check that this processor can run the code; running code for another one would crash the
    process.

    Parameters
    ----------
    file, path
        The code, and its path.
    features_here
        Returns the instruction sets of this processor; empty if they are not known.

    Raises
    ------
    ArtifactError
        If it cannot; the message names the file and the missing instruction sets.
    """
    wanted = file.notes.get(MACHINE)
    if wanted != get_machine():
        raise ArtifactError(
            f"{path}: compiled for {wanted} processors, this one is {get_machine()}; compile it "
            f"anew"
        )
    needed = set(file.notes.get(FEATURES) or ())
    here = set(features_here()) if needed else set()
    if here and not needed <= here:
        raise ArtifactError(
            f"{path}: compiled for a processor with {', '.join(sorted(needed - here)[:5])}, which "
            f"this one lacks; "
            "compile it here or with --target generic"
        )
