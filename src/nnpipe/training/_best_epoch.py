"""Choose the figure that decides the best epoch, and find that epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import find_quality_metric
from nnpipe.training.fit import TrainingRun

_LESS_IS_BETTER = frozenset({"loss", "mae", "rmse", "error_rate", "distance", "penalty"})
_MORE_IS_BETTER = frozenset(
    {"accuracy", "precision", "recall", "f1", "dice", "iou", "agreement", "found", "ordered", "top"}
)  # of outputs


def less_is_better(
    figure: str, metrics: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> bool | None:
    """Return whether smaller values of a figure of the history are better; ``None`` if it is not
    known.

    Parameters
    ----------
    figure
        Its name, such as ``digits/test/digit/accuracy``.
    metrics
        The metrics that the caller of the training asked for, by output and name: names of metrics
        of a task, :class:`~nnpipe.core.quality_metric.QualityMetric`, or objects, of which those of
        torchmetrics have ``higher_is_better``.

    Examples
    --------
    >>> [less_is_better(f"digits/test/digit/{name}") for name in ("loss", "accuracy", "mine")]
    [True, False, None]
    """
    for output, own in metrics.items():
        rest = figure.partition(f"/{output}/")[2]
        for name, metric in own.items():
            if rest == name or rest.startswith(f"{name}/"):
                return _get_metric_direction(metric)
    name = figure.rpartition("/")[2]
    if name in _LESS_IS_BETTER:
        return True
    if name in _MORE_IS_BETTER or name.rstrip("0123456789") in _MORE_IS_BETTER:
        return False
    return _get_metric_direction(name)


def _get_metric_direction(metric: Any) -> bool | None:
    if isinstance(metric, str):
        try:
            metric = find_quality_metric(metric)
        except KeyError:
            return None
    if isinstance(metric, QualityMetric):
        return metric.less_is_better
    higher = getattr(metric, "higher_is_better", None)
    return not higher if isinstance(higher, bool) else None


def get_monitored_figure(fit: TrainingRun) -> str | None:
    """Return the name of the figure that decides which epoch is best: by default the first
    evaluated split's loss.
    """
    if fit.options.monitor:
        return fit.options.monitor
    evaluated = [
        name
        for name in list_split_names(fit)
        if name.partition("/")[2] not in fit.options.train_splits
    ]
    return f"{evaluated[0]}/loss" if evaluated else None


def list_split_names(fit: TrainingRun) -> list[str]:
    """Return all splits as ``dataset/split``, as the names of figures begin."""
    return [f"{name}/{split}" for name, parts in fit.datasets.items() for split in parts]


def update_best_epoch(fit: TrainingRun, name: str, value: float) -> bool:
    """Return whether a figure is the best so far; stop the training after ``patience``
    evaluations without a better.
    """
    options = fit.options
    gain = (fit.best - value) if _is_least_best(fit, name) else (value - fit.best)
    if not math.isfinite(value):
        fit.log.warning("epoch %d: %s is %s, which counts as the worst", fit.epoch, name, value)
    elif fit.best_epoch == 0 or gain > options.min_delta:
        fit.best, fit.best_epoch, fit.waited = value, fit.epoch, 0
        return True
    fit.waited += 1
    if options.patience is not None and fit.waited >= options.patience:
        fit.stop(
            f"{name} did not get better for {fit.waited} evaluations; epoch {fit.best_epoch} was "
            f"best"
        )
    return False


def _is_least_best(fit: TrainingRun, name: str) -> bool:
    """Return whether the least value of a monitored figure is the best.

    Raises
    ------
    ConfigError
        If neither the options nor the figure say it.
    """
    if fit.options.monitor_mode is not None:
        return fit.options.monitor_mode == "min"
    least = less_is_better(name, fit.metrics)
    if least is None:
        raise ConfigError(
            f"monitor: nothing says whether less of {name!r} is better; give monitor_mode, min or "
            f"max"
        )
    return least


def update_kept_epochs(fit: TrainingRun, name: str, value: float) -> tuple[bool, int | None]:
    """Return whether an epoch is one of the ``keep_best`` best so far, and which epoch is no longer
    one of them.

    Epochs with equal figures keep their order.  A single one has no file besides that of the best
    weights.
    """
    if not math.isfinite(value) or fit.options.keep_best == 1:
        return False, None
    sign = 1 if _is_least_best(fit, name) else -1
    fit.kept = sorted([*fit.kept, (fit.epoch, value)], key=lambda one: (sign * one[1], one[0]))
    dropped = [epoch for epoch, _ in fit.kept[fit.options.keep_best :]]
    fit.kept = fit.kept[: fit.options.keep_best]
    return fit.epoch not in dropped, next((epoch for epoch in dropped if epoch != fit.epoch), None)


def check_monitor(
    fit: TrainingRun, figures: Callable[[str, str], Iterable[str]], others: Iterable[str] = ()
) -> None:
    """Raise before the first epoch if the monitored figure will not exist.

    Parameters
    ----------
    fit
        The training, before its first epoch.
    figures
        Takes the names of a data set and a split, and returns the names of its figures, read from
        its first batch.
    others
        Splits whose figures are not known before they are computed.

    Raises
    ------
    ConfigError
        If no split is evaluated, there is no figure of the name that was given, or nothing says
        which way it is better.
    """
    options, name = fit.options, fit.options.monitor
    if name is None:
        wanted = (
            "patience"
            if options.patience is not None
            else "weights"
            if options.weights == "best"
            else ""
        )
        wanted = "keep_best" if options.keep_best > 1 and not wanted else wanted
        if wanted and get_monitored_figure(fit) is None:
            raise ConfigError(
                f"{wanted} needs a figure to watch, and no split is evaluated; name one as monitor"
            )
        return
    where = next((split for split in list_split_names(fit) if name.startswith(split + "/")), None)
    known = [f"{split}/loss" for split in list_split_names(fit)]
    if where is not None:
        known = [f"{where}/{figure}" for figure in figures(*where.split("/", 1))]
    is_other = where is None and any(name.startswith(split + "/") for split in others)
    if known and name not in known and not is_other:
        raise ConfigError(
            f"there is no figure {name!r} to monitor; there are "
            f"{', '.join(known)}{suggest_name(name, known)}"
        )
    _is_least_best(fit, name)
