"""The parameters of a search space: discrete, mapping, int, bool, uniform and power."""

from __future__ import annotations

from typing import Any

from nnpipe.searching.kinds import of_kind
from nnpipe.searching.listed_parameters import BoolParameter, DiscreteParameter, MappingParameter
from nnpipe.searching.number_parameters import IntParameter, PowerParameter, UniformParameter
from nnpipe.searching.parameter import MOST_CHOICES, SearchParameter

__all__ = [
    "KINDS", "MOST_CHOICES", "BoolParameter", "DiscreteParameter", "IntParameter", "MappingParameter", "PowerParameter",
    "SearchParameter", "UniformParameter", "parameter_from_json",
]  # fmt: skip

KINDS: dict[str, type[SearchParameter]] = {
    cls.kind: cls
    for cls in (DiscreteParameter, MappingParameter, IntParameter, BoolParameter, UniformParameter, PowerParameter)
}
"""The parameters by kind."""


def parameter_from_json(entry: Any, where: str) -> SearchParameter:
    """Return the parameter of an entry such as ``{"kind": "int", "low": 1, "high": 5}``.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    return of_kind(entry, KINDS, where)
