"""Values that change while an experiment runs, with dots."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.module import Module, check_names


class State(Module):
    """A module's values: ``state.epoch += 1``.

    ``state() == state.state_dict() == state.load_state_dict()``: each gives
    the values as a dictionary, and the last takes one, too.

    Parameters
    ----------
    values
        Names and what they start with: numbers, texts, arrays, tensors, and
        lists and dictionaries of such.  Only these names can be set later, so
        a misspelt one is an error, not a new value.
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
            raise AttributeError(f"the state has no value {name!r}; it has {', '.join(values) or 'none'}")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"the state has no value {name!r} to set; it has {', '.join(self._values) or 'none'}")
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
        """Return none: values are no modules."""
        return iter(())

    def state_dict(self) -> dict[str, Any]:
        """Return the values by name; changing the dictionary changes nothing here."""
        return dict(self._values)

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`~nnpipe.experiment.module.StateError` unless a state has these names."""
        if not isinstance(state, Mapping):
            super().check_state(state, path)
        check_names(path or "State", self._values, state)

    def load_state_dict(self, state: Mapping[str, Any] | None = None) -> dict[str, Any]:  # type: ignore[override]
        """Take values, if any are given, and give them all.

        Raises
        ------
        StateError
            If a name is missing or unknown; nothing has changed then.
        """
        if state is not None:
            self.check_state(state)
            # In the order of this state, so that it writes itself as before.
            self._values.update({name: _taken(state[name], self._values[name]) for name in self._values})
        return self.state_dict()


def _taken(value: Any, before: Any) -> Any:
    """Return a copy of a value; a list that only grows stays one, also if an older state holds a plain list."""
    found = copy.deepcopy(value)
    return AppendOnly(found) if isinstance(before, AppendOnly) and isinstance(found, list) else found
