"""Variables: the values that the tasks of a script pass to each other."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("network", "data", "compiled", "callback", "samples", "outputs", "file", "any")
"""Kinds of variables, by the values that they hold while the script runs."""


@dataclass(frozen=True)
class Variable:
    """A value that one task creates and others use.

    Attributes
    ----------
    name
        Its name in the script.
    kind
        Kind of its value, one of :data:`KINDS`.
    """

    name: str
    kind: str
