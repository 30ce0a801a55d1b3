"""A name for this machine, and the folder for what is known about it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.measuring.host import host_facts


def machine_name(facts: Mapping[str, Any] | None = None) -> str:
    """Return a name for machines with this processor, as part of a path.

    It says nothing about whose machine it is, so virtual machines of one kind have one name.

    Parameters
    ----------
    facts
        Those of :func:`~nnpipe.measuring.host.host_facts`; by default of this machine.

    Examples
    --------
    >>> machine_name({"cpu": {"model": "ACME (R) 9000", "logical_cores": 4, "instructions": ["avx2"]}})
    'acme-r-9000-4-cores-d6ab4a5a'
    """
    cpu = (host_facts() if facts is None else facts)["cpu"]
    model = re.sub(r"[^a-z0-9]+", "-", str(cpu.get("model", "unknown")).lower()).strip("-")[:60] or "unknown"
    told = f"{cpu.get('model')} {cpu.get('logical_cores')} {cpu.get('instructions')}"
    return f"{model}-{cpu.get('logical_cores')}-cores-{zlib.crc32(told.encode()):08x}"


def machine_folder(home: Path) -> Path:
    """Return the folder for what is known about this machine, which may not exist yet."""
    return home / ".local" / "share" / "nnpipe" / "machines" / machine_name()
