"""Metrics that need all samples of a split: those of tasks, and objects as of torchmetrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.naming import nearest
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.ragged import Ragged
from nnpipe.core.task import task_named
from nnpipe.training import _metric_objects as objects

Wanted = Mapping[str, Mapping[str, Any]]
"""By output and figure: the name of a metric of the output's task, a ``QualityMetric``, or an object with a state."""


def wanted_of(given: Any, processes: int = 1) -> dict[str, dict[str, Any]]:
    """Return the metrics that a caller asks for, by output and figure.

    Raises
    ------
    ConfigError
        If something is no metric, or cannot be computed by several processes; the message names it.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"metrics is a {type(given).__name__}; give metrics by output: {{'label': ['roc_auc']}}")
    found: dict[str, dict[str, Any]] = {}
    for output, metrics in given.items():
        if isinstance(metrics, Mapping):
            named = dict(metrics)
        elif isinstance(metrics, Sequence) and not isinstance(metrics, str):
            named = {_name_of(metric): metric for metric in metrics}
            if len(named) < len(metrics):
                raise ConfigError(f"metrics[{output!r}]: two have one name; give them by names of your own")
        else:
            raise ConfigError(f"metrics[{output!r}] is a {type(metrics).__name__}; give a list, or metrics by name")
        found[output] = {}
        for name, metric in named.items():
            if isinstance(metric, (str, QualityMetric)):
                found[output][name] = metric
                continue
            where = f"metrics[{output!r}][{name!r}] is a {type(metric).__name__}"
            if not objects.is_object(metric):
                raise ConfigError(
                    f"{where}; give the name of a task's metric, a QualityMetric, or an object with "
                    f"{', '.join(objects.METHODS)}, such as those of torchmetrics"
                )
            if processes > 1 and not objects.is_joinable(metric):
                raise ConfigError(
                    f"{where}, which does not say how the states of {processes} processes are joined; "
                    "give an object of torchmetrics"
                )
            found[output] |= objects.unfolded(name, metric)
    return found


def _name_of(metric: Any) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "name", "") or type(metric).__name__


class WholeMetrics:
    """The metrics of one split in one epoch that cannot be added up.

    Those of tasks are computed by the code that computes a report's, from the arrays of all samples; so they do not
    depend on how these are divided into batches or processes.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._objects = {
            (output, name): objects.fresh(metric)
            for output, metrics in wanted.items()
            for name, metric in metrics.items()
            if hasattr(metric, "compute")
        }
        self._counted: set[str] = set()  # the outputs that objects have seen
        self._parts: dict[str, list[list[Evaluation]]] = {}
        self._weights: dict[str, list[np.ndarray]] = {}

    def add(self, outputs: Mapping[str, Any]) -> None:
        """Add the outputs of a batch."""
        for name, metrics in self._wanted.items():
            if name not in outputs:
                continue
            output = outputs[name]
            if any(isinstance(metric, (str, QualityMetric)) for metric in metrics.values()):
                self._judge(name, output)
            for key in metrics:
                if (name, key) in self._objects:
                    metric = self._objects[name, key]
                    if hasattr(metric, "to"):
                        metric = self._objects[name, key] = metric.to(output.output.device)
                    metric.update(*output.measured())
                    self._counted.add(name)

    def _judge(self, name: str, output: Any) -> None:
        judged = output.judged()
        if not judged:
            raise ConfigError(
                f"metrics[{name!r}]: a {type(output).__name__} belongs to no task; give objects such as torchmetrics'"
            )
        if name not in self._parts:  # a wrong name is an error at the first batch
            for metric in self._wanted[name].values():
                if isinstance(metric, (str, QualityMetric)):
                    _resolved(metric, judged[0].task)
        parts = self._parts.setdefault(name, [[] for _ in judged])
        for own, evaluation in zip(parts, judged, strict=True):
            own.append(evaluation)
        size = len(judged[0])
        weights = np.ones(size) if output.weights is None else output.weights.detach().double().cpu().numpy()
        self._weights.setdefault(name, []).append(weights)

    def figures(self) -> dict[str, float]:
        """Return the figures by ``output/metric``."""
        found: dict[str, float] = {}
        for name, metrics in self._wanted.items():
            judged = [Evaluation.joined(parts) for parts in self._parts.get(name, ())]
            judged = [task_named(one.task).completed(one) for one in judged]
            for key, metric in metrics.items():
                where = f"{name}/{key}"
                if (name, key) in self._objects:
                    if name not in self._counted:
                        continue
                    found |= _flat(where, self._objects[name, key].compute())
                elif judged:
                    values = [_resolved(metric, one.task).prepared(one)(self._all_weights(name)) for one in judged]
                    known = [value for value in values if not np.isnan(value)]
                    found[where] = float(np.mean(known)) if known else float("nan")
        return found

    def _all_weights(self, name: str) -> np.ndarray:
        return np.concatenate(self._weights[name])

    # -- checkpoints ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays of the samples so far, and the states of the objects."""
        return {
            "judged": {name: [_encoded(Evaluation.joined(p)) for p in parts] for name, parts in self._parts.items()},
            "weights": {name: self._all_weights(name) for name in self._weights},
            "objects": {
                f"{output}/{name}": objects.state_of(metric)
                for (output, name), metric in self._objects.items()
                if output in self._counted
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._parts = {n: [[_decoded(one)] for one in parts] for n, parts in state["judged"].items()}
        self._weights = {name: [weights] for name, weights in state["weights"].items()}
        for (output, name), metric in self._objects.items():
            if (key := f"{output}/{name}") in state["objects"]:
                objects.load(metric, state["objects"][key])
                self._counted.add(output)

    def join(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Take the samples of all processes, in order; nothing was added before."""
        states = list(states)
        for (output, name), metric in self._objects.items():
            if seen := [state["objects"][key] for state in states if (key := f"{output}/{name}") in state["objects"]]:
                objects.join(metric, seen)
                self._counted.add(output)
        for state in states:
            for name, judged in state["judged"].items():
                parts = self._parts.setdefault(name, [[] for _ in judged])
                for own, one in zip(parts, judged, strict=True):
                    own.append(_decoded(one))
            for name, weights in state["weights"].items():
                self._weights.setdefault(name, []).append(weights)


def check_outputs(metrics: Iterable[str], figures: Iterable[str]) -> None:
    """Raise :class:`ConfigError` if metrics were asked for of an output that has no figures, ``output/figure``."""
    outputs = sorted({name.partition("/")[0] for name in figures if "/" in name})
    for name in metrics:
        if outputs and name not in outputs:
            known = ", ".join(outputs)
            raise ConfigError(f"metrics: no output is called {name!r}; there are {known}{nearest(name, outputs)}")


def _resolved(metric: str | QualityMetric, task: str) -> QualityMetric:
    """Return a metric of a task by its name."""
    if isinstance(metric, QualityMetric):
        return metric
    known = task_named(task)
    try:
        return known.metric(metric)
    except KeyError:
        names = [one.name for one in known.metrics]
        raise ConfigError(
            f"the task {task!r} has no metric {metric!r}; it has {', '.join(names)}{nearest(metric, names)}"
        ) from None


def _flat(name: str, value: Any) -> dict[str, float]:
    """Return figures by name, given a number, a vector of numbers, or such by name."""
    if isinstance(value, Mapping):
        return {key: figure for below, one in value.items() for key, figure in _flat(f"{name}/{below}", one).items()}
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, np.float64)
    if array.ndim > 1:
        raise ConfigError(f"metrics: {name} is an array of the shape {array.shape}; a figure of a history is a number")
    return {name: float(array)} if array.ndim == 0 else {f"{name}/{n}": float(one) for n, one in enumerate(array)}


def _encoded(found: Evaluation) -> dict[str, Any]:
    return {
        "task": found.task,
        "arrays": dict(found.arrays),
        "class_names": list(found.class_names),
        "ragged": {name: {"values": rows.values, "counts": rows.counts} for name, rows in found.ragged.items()},
        "settings": dict(found.settings),
    }


def _decoded(state: Mapping[str, Any]) -> Evaluation:
    ragged = {name: Ragged(rows["values"], rows["counts"]) for name, rows in state["ragged"].items()}
    return Evaluation(state["task"], state["arrays"], tuple(state["class_names"]), ragged, state["settings"])
