"""States: values of a module that change while an experiment runs, as attributes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module, check_names


class AppendOnly(list[Any]):
    """A list of rows that are never changed after ``rows.append(row)``.

    Otherwise it is a normal list, and a state file stores it as one.  Checkpoints of
    a training store it in a file beside them, to which each appends new rows, so
    that they do not grow with the epochs.
    """

    def __copy__(self) -> AppendOnly:
        return AppendOnly(self)

    def __deepcopy__(self, memo: Any) -> AppendOnly:
        return AppendOnly(self)  # rows do not change


class State(Module):
    """A module's values: ``state.epoch += 1``.

    ``state()``, ``state.state_dict()`` and ``state.load_state_dict()`` all return the
    values as a dictionary; the last one also takes one.

    Parameters
    ----------
    values
        Initial values by name: numbers, strings, arrays, tensors, and lists and
        dictionaries of these.  Only these names can be set later, so a misspelt name is
        an error.
    """

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name.startswith("_") or hasattr(type(self), name):
                raise ConfigError(f"a state's value cannot be called {name!r}")
        object.__setattr__(self, "_values", dict(values))

    def __call__(self, *arguments: Any) -> dict[str, Any]:
        """Return the values."""
        return self.state_dict()

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(
                f"the state has no value {name!r}; it has {', '.join(values) or 'none'}"
            )
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(
                f"the state has no value {name!r} to set; it has "
                f"{', '.join(self._values) or 'none'}"
            )
        self._values[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def children(self) -> Iterator[Any]:
        """Return none: values are not modules."""
        return iter(())

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the values by name."""
        return dict(self._values)

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`~nnpipe.experiment.module.StateError` unless a state has these names."""
        if not isinstance(state, Mapping):
            super().check_state(state, path)
        check_names(path or "State", self._values, state)

    def load_state_dict(self, state: Mapping[str, Any] | None = None) -> dict[str, Any]:  # type: ignore[override]
        """Restore values, if any are given, and return all values.

        Raises
        ------
        StateError
            If a name is missing or unknown; nothing is changed then.
        """
        if state is not None:
            self.check_state(state)
            # In the order of this state, so that its file does not change.
            self._values.update(
                {name: _copy_value(state[name], self._values[name]) for name in self._values}
            )
        return self.state_dict()


def _copy_value(value: Any, before: Any) -> Any:
    """Return a copy of a value; an append-only list stays one, even if an older state holds a
    plain list.
    """
    found = copy.deepcopy(value)
    return (
        AppendOnly(found) if isinstance(before, AppendOnly) and isinstance(found, list) else found
    )
