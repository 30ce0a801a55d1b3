"""Callbacks by name, as command lines and files of settings have them."""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import nnpipe.training.callbacks as package
from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.writing_callback import WritingCallback

log = logging.getLogger("nnpipe.training")

DEFAULT, NONE = "default", "none"
"""Names that stand for several callbacks, and for none."""

_DEFAULT = (
    "EpochSummary", "DatasetSummary", "ModelSummary", "HistoryPlots", "LearningRateRecorder", "RandomSamples",
    "ClassificationReport", "Confusions", "WorstSamples", "SourceSnapshot",
)  # fmt: skip
_PAGE = "RunPage"
_LAST = ("TensorBoard", _PAGE)  # in this order, for they show what the others wrote
_OF_CLASSES = ("ClassificationReport", "Confusions", "WorstSamples")


def callback_classes() -> dict[str, type[Callback]]:
    """Return the callbacks that come with nnpipe by name."""
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            path = f"{package.__name__}.{module.name}"
            for name, value in vars(importlib.import_module(path)).items():
                own = inspect.isclass(value) and value.__module__ == path
                if own and issubclass(value, Callback) and value not in (Callback, WritingCallback):
                    found[name] = value
    return dict(sorted(found.items()))


def choose(
    names: Sequence[str], *, framework: str, known: Mapping[str, Any], classes: bool = True
) -> tuple[Callback, ...]:
    """Make callbacks by name; what shows the others' findings comes last.

    Parameters
    ----------
    names
        Names of classes, dotted paths of others, and ``default`` or ``none``.
        What ``default`` brings along is left out where it cannot work; what is named must.
    framework
        Whose training it is, as :attr:`Callback.frameworks <nnpipe.training.callbacks.callback.Callback>` has it.
    known
        Arguments by name; a callback is given those that it takes.
    classes
        Whether what is learned is to tell classes apart.

    Raises
    ------
    ConfigError
        Naming what is unknown, is not for this framework, or needs an argument that is not known.
    """
    everything = callback_classes()
    chosen: dict[str, type[Callback]] = {}
    for name in names:
        if name == DEFAULT:
            fitting = _fitting(everything, framework, classes)
            chosen |= {other: cls for other, cls in fitting.items() if not _missing(cls, known)}
        elif name != NONE:
            cls = _named(name, everything)
            if framework not in cls.frameworks:
                raise _not_for(framework, cls)
            chosen[cls.__name__] = cls
    for name in _LAST:
        if name in chosen:
            chosen[name] = chosen.pop(name)
    return tuple(_made(cls, known) for cls in chosen.values())


def check_frameworks(callbacks: Iterable[Callback], framework: str) -> None:
    """Raise :class:`ConfigError` naming callbacks that cannot look on the trainings of a framework."""
    for callback in callbacks:
        if framework not in callback.frameworks:
            raise _not_for(framework, type(callback))


def _not_for(framework: str, cls: type[Callback]) -> ConfigError:
    return ConfigError(
        f"{cls.__name__} looks on trainings with {' or '.join(cls.frameworks)} only, and this is one with {framework}"
    )


def _fitting(everything: Mapping[str, type[Callback]], framework: str, classes: bool) -> dict[str, type[Callback]]:
    draws = find_spec("matplotlib") is not None
    found = {
        name: everything[name]
        for name in (*_DEFAULT, _PAGE)
        if framework in everything[name].frameworks
        and (classes or name not in _OF_CLASSES)
        and (draws or not getattr(everything[name], "draws", False))
    }
    if not draws:
        log.warning("there will be no pictures: matplotlib is not installed (pip install 'nnpipe[report]')")
    return found


def _named(name: str, everything: Mapping[str, type[Callback]]) -> type[Callback]:
    if name in everything:
        return everything[name]
    if "." not in name:
        special = (DEFAULT, NONE)
        hint = nearest(name, (*everything, *special)) or f"; there are: {', '.join((*special, *everything))}"
        raise ConfigError(f"no callback is called {name!r}{hint}")
    module, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"callback {name} cannot be found: {error}") from None
    if not inspect.isclass(found) or not issubclass(found, Callback):
        raise ConfigError(f"{name} is no Callback")
    return found


def _missing(cls: type[Callback], known: Mapping[str, Any]) -> list[str]:
    return [
        p.name
        for p in inspect.signature(cls).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in known
    ]


def _made(cls: type[Callback], known: Mapping[str, Any]) -> Callback:
    missing = _missing(cls, known)
    if missing:
        raise ConfigError(
            f"{cls.__name__} needs {', '.join(missing)}, which is not known here: use the trainer in Python"
        )
    return cls(**{name: known[name] for name in inspect.signature(cls).parameters if name in known})
