"""Whether less or more of a figure of the history is better."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import quality_metric

_LESS_IS_BETTER = frozenset({"loss", "mae", "rmse", "error_rate", "distance", "penalty"})
_MORE_IS_BETTER = frozenset(
    {"accuracy", "precision", "recall", "f1", "dice", "iou", "agreement", "found", "ordered", "top"}
)  # of outputs


def less_is_better(figure: str, metrics: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> bool | None:
    """Return whether smaller values of a figure of the history are better; ``None`` if it is not known.

    Parameters
    ----------
    figure
        Its name, such as ``digits/test/digit/accuracy``.
    metrics
        The metrics that the caller of the training asked for, by output and name: names of metrics of a task,
        :class:`~nnpipe.core.quality_metric.QualityMetric`, or objects, of which those of torchmetrics have
        ``higher_is_better``.

    Examples
    --------
    >>> [less_is_better(f"digits/test/digit/{name}") for name in ("loss", "accuracy", "mine")]
    [True, False, None]
    """
    for output, own in metrics.items():
        rest = figure.partition(f"/{output}/")[2]
        for name, metric in own.items():
            if rest == name or rest.startswith(f"{name}/"):
                return _of_metric(metric)
    name = figure.rpartition("/")[2]
    if name in _LESS_IS_BETTER:
        return True
    if name in _MORE_IS_BETTER or name.rstrip("0123456789") in _MORE_IS_BETTER:
        return False
    return _of_metric(name)


def _of_metric(metric: Any) -> bool | None:
    if isinstance(metric, str):
        try:
            metric = quality_metric(metric)
        except KeyError:
            return None
    if isinstance(metric, QualityMetric):
        return metric.less_is_better
    higher = getattr(metric, "higher_is_better", None)
    return not higher if isinstance(higher, bool) else None
