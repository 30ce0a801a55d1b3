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
        Name of the variable in the script.
    kind
        Kind of the value, one of :data:`KINDS`.
    """

    name: str
    kind: str
