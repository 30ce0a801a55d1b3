"""Histories: rows of numbers, such as the loss of each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.module import Module, StateError

Number = int | float | bool


class History(Module):
    """Rows of numbers by name; rows may have different names.

    ::

        history.append(step=100, loss=0.5)
        history.append(step=200, loss=0.4, accuracy=0.8)
        history["accuracy"]  # array([nan, 0.8])

    Attributes
    ----------
    about
        Facts about the whole history, such as which weights a training left; not part of its state.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Number]] = AppendOnly()
        self.about: dict[str, Any] = {}

    def append(self, **values: Number) -> None:
        """Add a row.

        Raises
        ------
        ConfigError
            If a value is not a number.  Scalars of numpy and PyTorch are converted.
        """
        self._rows.append({name: _number(name, value) for name, value in values.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of their first use."""
        return tuple(dict.fromkeys(name for row in self._rows for name in row))

    @property
    def last(self) -> dict[str, Number]:
        """The last row; empty if there is none."""
        return dict(self._rows[-1]) if self._rows else {}

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column, float64 ``(rows,)``, with NaN where a row lacks the name."""
        if name not in self.names:
            raise KeyError(name)
        return np.array([row.get(name, math.nan) for row in self._rows], np.float64)

    def best(self, name: str, *, largest: bool = False) -> int:
        """Return the index of the first row with the least (or greatest) value of a name.

        Raises
        ------
        ConfigError
            If no row has such a value, or all are NaN.
        """
        column = self[name] if name in self.names else np.empty(0)
        if not np.isfinite(column).any():
            raise ConfigError(f"no row has a value of {name!r}")
        return int(np.nanargmax(column) if largest else np.nanargmin(column))

    def rows(self) -> Iterator[dict[str, Number]]:
        """Yield each row."""
        return (dict(row) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows."""
        return {"rows": AppendOnly(self._rows)}

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`StateError` unless the state consists of rows of numbers."""
        where = path or "History"
        if not isinstance(state, Mapping) or set(state) != {"rows"} or not isinstance(state["rows"], list):
            raise StateError(f"{where}: expected the rows of a history")
        for number, row in enumerate(state["rows"]):
            if not isinstance(row, Mapping) or not all(isinstance(v, (int, float)) for v in row.values()):
                raise StateError(f"{where}: row {number} is not one of numbers")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.check_state(state)
        self._rows = AppendOnly(dict(row) for row in state["rows"])


def _number(name: str, value: Any) -> Number:
    if isinstance(value, (bool, int, float)) and type(value).__module__ == "builtins":
        return value
    item = getattr(value, "item", None)
    try:
        found = item() if item is not None else value
    except (ValueError, RuntimeError):  # more than one element
        found = value
    if not isinstance(found, (bool, int, float)):
        raise ConfigError(f"{name}: a history holds numbers, not {type(value).__name__}")
    return found
