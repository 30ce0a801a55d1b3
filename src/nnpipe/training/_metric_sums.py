"""Sums of metrics over batches: always added in the same order, cheap at each step, and part of a checkpoint."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from nnpipe.training._whole_metrics import Wanted, WholeMetrics
from nnpipe.training.outputs.metric import Metric, figure

WHOLE = "/whole"  # no output's figure has this name
_EVERY = 64  # batches whose metrics stay on the device before their sums are fetched


class MetricSums:
    """Sums of the metrics of one split in one epoch, in double precision.

    Metrics stay on the device for some batches, so that no step waits for it.
    Each batch is summed separately and batches are added in order, so the
    result does not depend on when the sums are fetched.

    Parameters
    ----------
    wanted
        Further metrics by output and name, which need all samples.
    """

    def __init__(self, wanted: Wanted | None = None) -> None:
        self._whole = WholeMetrics(wanted) if wanted else None
        self._waiting: defaultdict[str, list[Metric]] = defaultdict(list)
        self._sums: dict[str, list[Any]] = {}
        self._count = 0

    def add(self, outputs: Mapping[str, Any], metrics: bool = True) -> None:
        """Add the outputs of a batch."""
        waiting = self._waiting
        for name, output in outputs.items():
            waiting[f"{name}/loss"].append(output.loss_metric())
            if output.scale != 1.0:
                waiting[f"{name}/scaled"].append(_scaled(output))
            if metrics:
                for metric, value in output.metrics().items():
                    waiting[f"{name}/{metric}"].append(value)
        if metrics and self._whole is not None:
            self._whole.add(outputs)
        self._count += 1
        if self._count == _EVERY and waiting:
            self.fetch()

    def fetch(self) -> None:
        """Add the metrics that are still on the device to the sums."""
        for name, metrics in self._waiting.items():
            counted = [metric for metric in metrics if metric.numerator.shape[0]]
            if not counted:
                continue
            sizes = [metric.numerator.shape[0] for metric in counted]
            above = _sums([metric.numerator for metric in counted], sizes)
            below: Iterable[Any]
            if counted[0].denominator is None:
                below = map(float, sizes)
            else:
                below = _sums([metric.denominator for metric in counted], sizes)
            kept = self._sums.setdefault(name, [0.0, 0.0, counted[0].finish])
            for one, other in zip(above, below, strict=True):
                kept[0] = kept[0] + one
                kept[1] = kept[1] + other
        self._waiting.clear()
        self._count = 0

    def figures(self) -> dict[str, float]:
        """Return ``output/metric`` and, first, ``loss``: the sum over outputs of their losses times their scales.

        The loss of a single output with no scale is the whole loss, and is given once.
        """
        self.fetch()
        found = {name: figure(*kept) for name, kept in self._sums.items()}
        for name in [name for name, value in found.items() if name.endswith("/loss") and math.isnan(value)]:
            # Some outputs are no numbers; a metric that compares or selects might hide that.
            output = name.removesuffix("loss")
            found |= {each: math.nan for each in found if each.startswith(output)}
        scaled = {name: f"{name.removesuffix('/loss')}/scaled" for name in found if name.endswith("/loss")}
        losses = [found.get(other, found[name]) for name, other in scaled.items()]
        single = [name for name, other in scaled.items() if len(scaled) == 1 and other not in found]
        shown = {name: value for name, value in found.items() if not name.endswith("/scaled") and name not in single}
        shown |= {} if self._whole is None else self._whole.figures()
        return {"loss": math.fsum(losses) if losses else math.nan} | shown

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        self.fetch()
        state: dict[str, Any] = {
            name: [np.asarray(above), np.asarray(below), finish] for name, (above, below, finish) in self._sums.items()
        }
        return state if self._whole is None else state | {WHOLE: self._whole.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore sums that :meth:`state_dict` returned."""
        self._waiting.clear()
        self._count = 0
        self._sums = {name: list(kept) for name, kept in state.items() if name != WHOLE}
        if self._whole is not None and WHOLE in state:
            self._whole.load_state_dict(state[WHOLE])

    def join(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Add sums that other processes returned by :meth:`state_dict`, in order."""
        states = list(states)
        if self._whole is not None:
            self._whole.join(state[WHOLE] for state in states)
        for state in states:
            for name, (above, below, finish) in ((n, kept) for n, kept in state.items() if n != WHOLE):
                kept = self._sums.setdefault(name, [0.0, 0.0, finish])
                kept[0] = kept[0] + above
                kept[1] = kept[1] + below


def _scaled(output: Any) -> Metric:
    loss = output.loss_metric()
    return Metric(loss.numerator * output.scale, loss.denominator)


def _sums(tensors: list[Any], sizes: list[int]) -> Any:
    """Return the sum of each tensor over its first axis, as float64 ``(batches, ...)``."""
    import torch

    values = torch.cat(tensors).cpu().double().numpy()
    return np.add.reduceat(values, np.cumsum([0, *sizes[:-1]]), axis=0)
