"""What a board without an operating system tells of the flash and memory of its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.protocols.conversation.payloads import Stats

_STATED = ("flash_bytes", "arena_bytes", "data_bytes")


def states_memory(about: Mapping[str, Any]) -> bool:
    """Return whether the facts that a target sent with its answer to MODEL state the sizes of the model."""
    return all(type(about.get(key)) is int for key in _STATED)


def board_memory(about: Mapping[str, Any], stats: Stats) -> dict[str, int]:
    """Return the bytes of flash, arena, data, stack and all memory that a model needs.

    Parameters
    ----------
    about
        The facts, which :func:`states_memory`.
    stats
        The answer to STATS after some runs, whose rows tell arena, data and the stack that runs have used.

    Returns
    -------
    dict
        ``flash_bytes``, ``arena_bytes``, ``data_bytes``, ``stack_bytes``, ``ram_bytes``; empty if nothing has run.
    """
    ram = int(max(stats.table()["process_bytes"], default=0))
    stack = ram - about["arena_bytes"] - about["data_bytes"]
    if stack < 0 or not stats.inferences:
        return {}
    return {key: about[key] for key in _STATED} | {"stack_bytes": stack, "ram_bytes": ram}
