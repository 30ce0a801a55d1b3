"""Variables: the values that tasks of a script pass to each other."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("network", "data", "compiled", "callback", "samples", "outputs", "file", "any")
"""Kinds of variables: what they hold while the script runs."""


@dataclass(frozen=True)
class Variable:
    """Something that one task makes and others use.

    Attributes
    ----------
    name
        Its name in the script.
    kind
        What it holds, one of :data:`KINDS`.
    """

    name: str
    kind: str
