"""Tensors that a quantiser leaves in floats, and the operations that are then computed in floats.

It does not suffice to keep an operation in floats: the operations around it round its inputs and results all the
same.  A *tensor* stays in floats only if none of the operations that compute it or take it is quantised.  Some
operations only clip or move values, such as ReLU or a transposition.  Quantisers merge them with the operation before
or after them, so that rounding their result would be rounding what they take: the tensors on both sides
of such an operation stay in floats together.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nnpipe.core.errors import ConfigError

_NEAR = 3  # names to suggest


@dataclass(frozen=True)
class GraphStep:
    """An operation of any framework.

    Parameters
    ----------
    name
        Its name in the framework.
    inputs, outputs
        The names of the tensors that it takes and computes.
    passing
        Whether it only clips or moves the values of its first input.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passing: bool = False


def chosen(patterns: Sequence[str], known: Collection[str], owner: str) -> set[str]:
    """Return the tensors that names or patterns such as ``block1*`` stand for.

    Parameters
    ----------
    patterns
        A name stands for itself, even if it has the characters of a pattern.
    known
        The names of all tensors.
    owner
        The compiler's class, for the message.

    Raises
    ------
    ConfigError
        If a pattern stands for no tensor; the message lists names that are near.
    """
    found: set[str] = set()
    for pattern in patterns:
        matching = {pattern} if pattern in known else {name for name in known if fnmatchcase(name, pattern)}
        if not matching:
            told = ", ".join(map(repr, _near(pattern, known)))
            raise ConfigError(f"{owner}: --keep-float {pattern!r} is no tensor of the model; near it are {told}")
        found |= matching
    return found


def _near(pattern: str, known: Collection[str]) -> list[str]:
    """Return the names nearest to one that is not there: first those that contain it, the shortest of them first."""
    part = pattern.strip("*?").lower()
    holding = sorted((name for name in known if part and part in name.lower()), key=lambda name: (len(name), name))
    alike = difflib.get_close_matches(pattern, sorted(known), n=_NEAR, cutoff=0.4)
    return list(dict.fromkeys([*holding, *alike]))[:_NEAR] or sorted(known)[:_NEAR]


def merged(tensors: Iterable[str], steps: Sequence[GraphStep]) -> set[str]:
    """Return tensors together with those that are clipped or moved to or from them."""
    beside: dict[str, set[str]] = {}
    for step in steps:
        if step.passing and step.inputs:
            for output in step.outputs:
                beside.setdefault(step.inputs[0], set()).add(output)
                beside.setdefault(output, set()).add(step.inputs[0])
    found, waiting = set(tensors), list(tensors)
    while waiting:
        fresh = beside.get(waiting.pop(), set()) - found
        found |= fresh
        waiting += fresh
    return found


def touching(tensors: Collection[str], steps: Sequence[GraphStep]) -> list[GraphStep]:
    """Return the operations that compute or take any of the tensors."""
    wanted = set(tensors)
    return [step for step in steps if not wanted.isdisjoint((*step.inputs, *step.outputs))]
