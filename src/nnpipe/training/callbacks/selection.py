"""Choosing callbacks by name, as command lines and settings files give them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ComponentNotFound, ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.registry import components, find
from nnpipe.experiment.settings import parse_yaml
from nnpipe.training.callbacks.callback import Callback

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun

log = logging.getLogger("nnpipe.training")

DEFAULT, NONE = "default", "none"
"""The names for the default callbacks, and for none."""

_DEFAULT = (
    "EpochSummary",
    "DatasetSummary",
    "ModelSummary",
    "HistoryPlots",
    "BestFigures",
    "LearningRateRecorder",
    "RandomSamples",
    "ClassificationReport",
    "Confusions",
    "WorstSamples",
    "SourceSnapshot",
)
_PAGE = "RunPage"
_LAST = ("TensorBoard", _PAGE)  # in this order, since they show the files of the others
_OF_CLASSES = ("ClassificationReport", "Confusions", "WorstSamples")


def find_callback_classes() -> dict[str, type[Callback]]:
    """Return the callbacks of nnpipe and of plugins by name; if two have one name, nnpipe's."""
    return dict(sorted({cls.__name__: cls for cls in reversed(components(Callback))}.items()))


def choose(
    names: Sequence[str], *, framework: str, known: Mapping[str, Any], classes: bool = True
) -> tuple[Callback, ...]:
    """Return callbacks by name; those that show the files of others come last.

    Parameters
    ----------
    names
        Names of classes or their dotted paths, and ``default`` or ``none``. Callbacks of
        ``default`` that cannot work here are left out; for named ones this is an error. Options
        follow a colon: ``NanWatch:every=5,layers=false``.
    framework
        The framework of the training, as in :attr:`Callback.frameworks
        <nnpipe.training.callbacks.callback.Callback>`.
    known
        Arguments by name; each callback receives those that it takes, unless an option replaces
        them.
    classes
        Whether the model is a classifier.

    Raises
    ------
    ComponentNotFound
        If there is no callback of a given name.
    ConfigError
        If a callback does not support the framework, an option is unknown, or a required argument
        is missing.
    """
    chosen: dict[str, tuple[type[Callback], Mapping[str, Any]]] = {}
    for text in names:
        name, _, options = text.partition(":")
        if text == DEFAULT:
            fitting = _select_defaults(find_callback_classes(), framework, classes)
            given = {
                other: (cls, chosen.get(other, (cls, {}))[1]) for other, cls in fitting.items()
            }
            chosen |= {
                other: item
                for other, item in given.items()
                if not _list_missing_options(item[0], {**known, **item[1]})
            }
        elif text != NONE:
            cls = _find_callback(name)
            if framework not in cls.frameworks:
                raise _make_unsupported_error(framework, cls)
            chosen[cls.__name__] = cls, _read_options(cls, options)
    for name in _LAST:
        if name in chosen:
            chosen[name] = chosen.pop(name)
    return tuple(_create_callback(cls, {**known, **given}) for cls, given in chosen.values())


def check_frameworks(callbacks: Iterable[Callback], framework: str) -> None:
    """Raise :class:`ConfigError` if a callback does not support the framework."""
    for callback in callbacks:
        if framework not in callback.frameworks:
            raise _make_unsupported_error(framework, type(callback))


def _make_unsupported_error(framework: str, cls: type[Callback]) -> ConfigError:
    return ConfigError(
        f"{cls.__name__} supports only {' and '.join(cls.frameworks)}; this training uses "
        f"{framework}"
    )


def _select_defaults(
    everything: Mapping[str, type[Callback]], framework: str, classes: bool
) -> dict[str, type[Callback]]:
    draws = find_spec("matplotlib") is not None
    found = {
        name: everything[name]
        for name in (*_DEFAULT, _PAGE)
        if framework in everything[name].frameworks
        and (classes or name not in _OF_CLASSES)
        and (draws or not getattr(everything[name], "draws", False))
    }
    if not draws:
        log.warning(
            "there will be no pictures: matplotlib is not installed (pip install 'nnpipe[report]')"
        )
    return found


def _find_callback(name: str) -> type[Callback]:
    try:
        return find(name, Callback)
    except ComponentNotFound:
        hint = "" if "." in name else suggest_name(name, (DEFAULT, NONE))
        if not hint:
            raise
        raise ComponentNotFound(f"no callback is called {name!r}{hint}") from None


def _read_options(cls: type[Callback], text: str) -> dict[str, Any]:
    """Return the options of ``every=5,layers=false``; values are YAML, so lists are written in
    brackets.
    """
    given: dict[str, Any] = {}
    for part in re.split(r",(?=\s*\w+\s*=)", text) if text else ():
        name, equals, value = part.partition("=")
        known = [option.name for option in cls.options()]
        if not equals:
            raise ConfigError(
                f"{cls.__name__}: {part!r} is no option; write NAME=VALUE, as in "
                f"{cls.__name__}:every=5"
            )
        if name.strip() not in known:
            hint = suggest_name(name.strip(), known) or (
                f"; it has {', '.join(known)}" if known else "; it has none"
            )
            raise ConfigError(f"{cls.__name__} has no option {name.strip()!r}{hint}")
        given[name.strip()] = parse_yaml(value, f"{cls.__name__}:{name.strip()}")
    return given


def _list_missing_options(cls: type[Callback], known: Mapping[str, Any]) -> list[str]:
    return [option.name for option in cls.options() if option.required and option.name not in known]


def _create_callback(cls: type[Callback], known: Mapping[str, Any]) -> Callback:
    missing = _list_missing_options(cls, known)
    if missing:
        raise ConfigError(
            f"{cls.__name__} needs {', '.join(missing)}, which is not known here: "
            f"write {cls.__name__}:{missing[0]}=VALUE, or use the trainer in Python"
        )
    return cls(
        **{option.name: known[option.name] for option in cls.options() if option.name in known}
    )


class SkipEpochs(Callback):
    """Run other callbacks in every n-th epoch and in the last one only.

    Hooks of the beginning and the end of the training are always called.  If the training stops
    before its last epoch, the last epoch is skipped like any other.

    Parameters
    ----------
    callbacks
        The callbacks, or their names, as in ``SkipEpochs:callbacks=[WorstSamples],every=10``.
    every
        The number of epochs.
    """

    frameworks: ClassVar[tuple[str, ...]] = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackSkipEpoch",)

    def __init__(self, callbacks: Sequence[Callback | str], every: int = 10) -> None:
        check_call(SkipEpochs, locals())
        if every < 1:
            raise ConfigError(f"SkipEpochs: every is {every}; it takes 1 or more")
        names = [one for one in callbacks if isinstance(one, str)]
        self.callbacks = [
            *(one for one in callbacks if isinstance(one, Callback)),
            *choose(names, framework="torch", known={}),
        ]
        self.every = every
        # A callback that supports one framework only needs trainings of this one.
        self.frameworks = tuple(  # type: ignore[misc]
            name
            for name in SkipEpochs.frameworks
            if all(name in one.frameworks for one in self.callbacks)
        )

    def parts(self) -> tuple[Callback, ...]:
        """Return the callbacks that run in some epochs only."""
        return tuple(part for callback in self.callbacks for part in callback.parts())

    def _is_due(self, fit: TrainingRun) -> bool:
        return fit.epoch % self.every == 0 or fit.epoch == fit.options.num_epochs

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Prepare all."""
        for callback in self.callbacks:
            callback.on_fit_begin(fit)

    def on_epoch_begin(self, fit: TrainingRun) -> None:
        """Prepare for an epoch, if it is not skipped."""
        for callback in self.callbacks if self._is_due(fit) else ():
            callback.on_epoch_begin(fit)

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Inspect or change a batch of an epoch that is not skipped."""
        for callback in self.callbacks if self._is_due(fit) else ():
            callback.on_batch_begin(fit, batch)

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Inspect a batch and its outputs in an epoch that is not skipped."""
        for callback in self.callbacks if self._is_due(fit) else ():
            callback.on_batch_end(fit, batch, outputs)

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Inspect a batch of an evaluated split in an epoch that is not skipped."""
        for callback in self.callbacks if self._is_due(fit) else ():
            callback.on_evaluate_batch(fit, dataset, split, batch, outputs)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Finish an epoch, if it is not skipped."""
        for callback in self.callbacks if self._is_due(fit) else ():
            callback.on_epoch_end(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Finish all."""
        for callback in self.callbacks:
            callback.on_fit_end(fit)

    def close(self) -> None:
        """Close all, even if some fail."""
        failed = None
        for callback in self.callbacks:
            try:
                callback.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
