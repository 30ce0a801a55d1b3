"""Modules: the parts of an experiment that have a state, nested as attributes into one tree."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from nnpipe.core.errors import ConfigError, NNPipeError, NotSupported


class StateError(ConfigError):
    """A state does not fit the module that loads it; nothing has changed."""


@runtime_checkable
class Stateful(Protocol):
    """An object that returns and restores its state: a module, a PyTorch layer or optimiser, ..."""

    def state_dict(self) -> Any:
        """Return the state."""
        raise NotImplementedError

    def load_state_dict(self, state: Any) -> Any:
        """Restore a state."""
        raise NotImplementedError


class Module:
    """A part of an experiment.

    Its children are the attributes that are :class:`Stateful`, and those in lists,
    tuples and dictionaries.  A module's state is that of its children by name.
    Other attributes are arguments, not state: keep values that change in a
    :class:`~nnpipe.experiment.state.State`::

        class Counter(Module):
            def __init__(self):
                self.state = State(count=0)

            def __call__(self):
                self.state.count += 1

        counter = Counter()
        counter()
        counter.state_dict()  # {"state": {"count": 1}}

    There is no registration, and ``super().__init__()`` is not required.
    """

    def __call__(self, *arguments: Any) -> Any:
        """Carry out the module's task; subclasses implement this."""
        raise NotSupported(f"{type(self).__name__} does nothing when called")

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield the children with their names: ``name``, ``name.0`` or ``name.key``, in the
        order of the attributes.
        """
        for name, value in vars(self).items():
            yield from _iterate_stateful(name, value)

    def modules(self) -> Iterator[tuple[str, Module]]:
        """Yield this module and all modules below it with their paths; its own path is empty.

        A module that occurs twice is yielded once.
        """
        yield from _iterate_modules("", self, set())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all children by name."""
        return {name: child.state_dict() for name, child in _iterate_children(self)}

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`StateError`, naming the place, unless a state has the form of this module's
        state.

        For objects that are not a :class:`Module` (layers, optimisers), only the presence of a
        state is checked.
        """
        where = path or type(self).__name__
        if not isinstance(state, Mapping):
            raise StateError(
                f"{where}: expected the state of a {type(self).__name__}, found "
                f"{type(state).__name__}"
            )
        children = dict(_iterate_children(self))
        check_names(where, children, state)
        for name, child in children.items():
            if isinstance(child, Module):
                child.check_state(state[name], f"{path}.{name}" if path else name)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state completely, or change nothing.

        Raises
        ------
        StateError
            If a name is missing or unknown, or a child refuses its state; the message names it.
        """
        self.check_state(state)
        before: list[tuple[Stateful, Any]] = []
        for path, child in _iterate_leaves("", self):
            before.append((child, copy.deepcopy(child.state_dict())))
            try:
                child.load_state_dict(_get_at(state, path))
            except Exception as error:
                for loaded, previous in reversed(before):
                    loaded.load_state_dict(previous)
                if isinstance(error, NNPipeError) or not isinstance(error, _REFUSALS):
                    raise
                raise StateError(
                    f"{'.'.join(path)}: {type(child).__name__} refused it: {error}"
                ) from error


_REFUSALS = (ValueError, KeyError, TypeError, RuntimeError, AttributeError, IndexError)
"""Errors that objects of other packages raise for a wrong state; any other error is a defect."""


def check_names(where: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise :class:`StateError` naming missing and unknown names of a state."""
    missing = [str(name) for name in known if name not in given]
    if missing:
        raise StateError(f"{where}: the state has no {', '.join(missing[:5])}")
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        raise StateError(f"{where}: the state has {', '.join(unknown[:5])}, which is unknown here")


def _iterate_stateful(name: str, value: Any) -> Iterator[tuple[str, Stateful]]:
    if isinstance(value, Stateful) and not isinstance(value, type):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _iterate_stateful(f"{name}.{number}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _iterate_stateful(f"{name}.{key}", item)


def _iterate_children(module: Module) -> Iterator[tuple[str, Stateful]]:
    """Yield children, each once; raise if a name stands for two."""
    seen: set[int] = set()
    names: set[str] = set()
    for name, child in module.children():
        if id(child) in seen:
            continue
        if name in names:
            raise ConfigError(f"{type(module).__name__}: two children are called {name!r}")
        seen.add(id(child))
        names.add(name)
        yield name, child


def _iterate_modules(path: str, module: Module, seen: set[int]) -> Iterator[tuple[str, Module]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    for name, child in module.children():
        if isinstance(child, Module):
            yield from _iterate_modules(f"{path}.{name}" if path else name, child, seen)


def _iterate_leaves(
    path: str, module: Module, names: Sequence[str] = ()
) -> Iterator[tuple[list[str], Stateful]]:
    """Yield the objects below a module that load their own state, with their paths."""
    for name, child in _iterate_children(module):
        own = [*names, name]
        if isinstance(child, Module) and type(child).load_state_dict is Module.load_state_dict:
            yield from _iterate_leaves(path, child, own)
        else:
            yield own, child


def _get_at(state: Any, path: Sequence[str]) -> Any:
    for name in path:
        state = state[name]
    return state
