"""The instruction sets of this machine's processor."""

from __future__ import annotations

import platform
import re
from pathlib import Path

_X86 = frozenset({"x86_64", "amd64", "i386", "i686"})
_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def read_instruction_sets(root: Path = Path("/")) -> frozenset[str]:
    """Return the flags that Linux lists for the first core; none where the system does not list
    them.

    Parameters
    ----------
    root
        The folder that holds ``proc``.
    """
    try:
        text = (root / "proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    # x86 and ARM
    lines = (re.search(rf"^{name}\s*:(.*)$", text, re.MULTILINE) for name in ("flags", "Features"))
    return frozenset(flag for line in lines if line for flag in line[1].split())


def has_saturating_byte_sums(root: Path = Path("/"), machine: str | None = None) -> bool:
    """Return whether sums of two products of 8-bit integers can overflow in this processor's
    kernels.

    x86 processors without VNNI or AMX multiply and add by ``vpmaddubsw``, which saturates at 16
    bits: two products of an unsigned and a signed byte reach twice as far.  Weights of 7 bits avoid
    that.

    Parameters
    ----------
    root
        The folder that holds ``proc``.
    machine
        The architecture; this machine's by default.
    """
    if (machine or platform.machine()).lower() not in _X86:
        return False
    return not read_instruction_sets(root) & _DOT_PRODUCTS
