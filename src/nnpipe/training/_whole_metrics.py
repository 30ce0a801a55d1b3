"""Metrics of whole splits: sums over batches, and metrics that need all samples."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.messages import suggest_name
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import get_task
from nnpipe.training.outputs.output import Metric, compute_figure

# Metrics that are objects with a state, as those of torchmetrics: copied, stored, and joined over
# processes.
#
# torchmetrics exchanges states by itself when it computes, but not where a process has had no
# samples: that process has no arrays of the right shape and kind to send, and the others wait or
# read nonsense.  So states are exchanged with the trainer's other sums, and reduced here in the
# ways that the objects declare.

METHODS = ("update", "compute", "reset", "state_dict", "load_state_dict")


def is_object(metric: Any) -> bool:
    """Return whether a metric is an object with a state."""
    return all(hasattr(metric, method) for method in METHODS)


def is_joinable(metric: Any) -> bool:
    """Return whether an object says how its states of several processes become one."""
    return bool(_find_parts(metric))


def flatten_collection(name: str, metric: Any) -> dict[str, Any]:
    """Return an object by its name, and the members of a collection of torchmetrics by theirs.

    Members with equal states share one within a collection, which the states that it gives to be
    stored do not have.
    """
    if hasattr(metric, "compute_groups") and hasattr(metric, "items"):
        return {f"{name}/{key}": one for key, one in metric.items()}
    return {name: metric}


def copy_without_samples(metric: Any) -> Any:
    """Return a copy of an object, without samples."""
    found = copy.deepcopy(metric)
    found.reset()
    if hasattr(found, "persistent"):
        found.persistent(True)  # torchmetrics: its state is part of state_dict
    for part in _find_parts(found).values():
        part.distributed_available_fn = _is_exchange_needed
    return found


def _is_exchange_needed() -> bool:
    """Return that nothing is to be exchanged, in place of the function that torchmetrics asks."""
    return False


def get_metric_state(metric: Any) -> dict[str, Any]:
    """Return the state of an object, on the CPU."""
    state = {name: _on_cpu(value) for name, value in metric.state_dict().items()}
    return {
        "state": state,
        "updates": {name: part._update_count for name, part in _find_parts(metric).items()},
    }


def load(metric: Any, state: Mapping[str, Any]) -> None:
    """Restore what :func:`get_metric_state` returned."""
    metric.load_state_dict(dict(state["state"]))
    for name, part in _find_parts(metric).items():
        # torchmetrics warns of a metric that was never updated
        part._update_count = state["updates"][name]


def join(metric: Any, states: Iterable[Mapping[str, Any]]) -> None:
    """Set a fresh object to the state that it would have after the samples of all states, in
    their order.
    """
    states = list(states)
    for name, part in _find_parts(metric).items():
        seen = [one["state"] for one in states if one["updates"][name]]
        for attribute, reduce in part._reductions.items() if seen else ():
            values = [one[f"{name}.{attribute}" if name else attribute] for one in seen]
            setattr(part, attribute, _reduce_values(values, reduce))
        part._update_count = sum(one["updates"][name] for one in states)


def _find_parts(metric: Any) -> dict[str, Any]:
    """Return the objects of torchmetrics that an object consists of, by name."""
    modules = metric.named_modules() if hasattr(metric, "named_modules") else ()
    return {name: module for name, module in modules if hasattr(module, "_reductions")}


def _reduce_values(values: list[Any], reduce: Any) -> Any:
    import torch

    if len(values) == 1:
        return values[0]
    if isinstance(values[0], list):
        return [one for value in values for one in value]
    together = torch.stack(values)
    return together if reduce is None else reduce(together)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cpu(one) for one in value]
    return value.detach().cpu() if hasattr(value, "detach") else value


Wanted = Mapping[str, Mapping[str, Any]]
"""By output and figure: the name of a metric of the output's task, a ``QualityMetric``, or an
object with a state.
"""


def resolve_wanted_metrics(given: Any, processes: int = 1) -> dict[str, dict[str, Any]]:
    """Return the metrics that a caller asks for, by output and figure.

    Raises
    ------
    ConfigError
        If something is no metric, or cannot be computed by several processes; the message names it.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"metrics is a {type(given).__name__}; give metrics by output: {{'label': ['roc_auc']}}"
        )
    found: dict[str, dict[str, Any]] = {}
    for output, metrics in given.items():
        if isinstance(metrics, Mapping):
            named = dict(metrics)
        elif isinstance(metrics, Sequence) and not isinstance(metrics, str):
            named = {_get_metric_name(metric): metric for metric in metrics}
            if len(named) < len(metrics):
                raise ConfigError(
                    f"metrics[{output!r}]: two have one name; give them by names of your own"
                )
        else:
            raise ConfigError(
                f"metrics[{output!r}] is a {type(metrics).__name__}; give a list, or metrics by "
                f"name"
            )
        found[output] = {}
        for name, metric in named.items():
            if isinstance(metric, (str, QualityMetric)):
                found[output][name] = metric
                continue
            where = f"metrics[{output!r}][{name!r}] is a {type(metric).__name__}"
            if not is_object(metric):
                raise ConfigError(
                    f"{where}; give the name of a task's metric, a QualityMetric, or an object "
                    f"with {', '.join(METHODS)}, such as those of torchmetrics"
                )
            if processes > 1 and not is_joinable(metric):
                raise ConfigError(
                    f"{where}, which does not say how the states of {processes} processes are "
                    f"joined; "
                    "give an object of torchmetrics"
                )
            found[output] |= flatten_collection(name, metric)
    return found


def _get_metric_name(metric: Any) -> str:
    return (
        metric if isinstance(metric, str) else getattr(metric, "name", "") or type(metric).__name__
    )


class WholeMetrics:
    """The metrics of one split in one epoch that cannot be added up.

    Those of tasks are computed by the code that computes a report's, from the arrays of all
    samples; so they do not depend on how these are divided into batches or processes.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._objects = {
            (output, name): copy_without_samples(metric)
            for output, metrics in wanted.items()
            for name, metric in metrics.items()
            if hasattr(metric, "update")
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
                self._evaluate_output(name, output)
            for key in metrics:
                if (name, key) in self._objects:
                    metric = self._objects[name, key]
                    if hasattr(metric, "to"):
                        metric = self._objects[name, key] = metric.to(output.output.device)
                    metric.update(*output.get_metric_inputs())
                    self._counted.add(name)

    def _evaluate_output(self, name: str, output: Any) -> None:
        judged = output.to_evaluations()
        if not judged:
            raise ConfigError(
                f"metrics[{name!r}]: a {type(output).__name__} belongs to no task; give objects "
                f"such as torchmetrics'"
            )
        if name not in self._parts:  # a wrong name is an error at the first batch
            for metric in self._wanted[name].values():
                if isinstance(metric, (str, QualityMetric)):
                    _resolve_metric(metric, judged[0].task)
        parts = self._parts.setdefault(name, [[] for _ in judged])
        for own, evaluation in zip(parts, judged, strict=True):
            own.append(evaluation)
        size = len(judged[0])
        weights = (
            np.ones(size)
            if output.weights is None
            else output.weights.detach().double().cpu().numpy()
        )
        self._weights.setdefault(name, []).append(weights)

    def figures(self) -> dict[str, float]:
        """Return the figures by ``output/metric``."""
        found: dict[str, float] = {}
        for name, metrics in self._wanted.items():
            judged = [Evaluation.concat(parts) for parts in self._parts.get(name, ())]
            judged = [get_task(one.task).finalize(one) for one in judged]
            for key, metric in metrics.items():
                where = f"{name}/{key}"
                if (name, key) in self._objects:
                    if name not in self._counted:
                        continue
                    found |= _flatten_figures(where, self._objects[name, key].compute())
                elif judged:
                    values = [
                        _resolve_metric(metric, one.task).build_statistic(one)(
                            self._concat_weights(name)
                        )
                        for one in judged
                    ]
                    known = [value for value in values if not np.isnan(value)]
                    found[where] = float(np.mean(known)) if known else float("nan")
        return found

    def _concat_weights(self, name: str) -> np.ndarray:
        return np.concatenate(self._weights[name])

    # -- checkpoints ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays of the samples so far, and the states of the objects."""
        return {
            "judged": {
                name: [_encode_evaluation(Evaluation.concat(p)) for p in parts]
                for name, parts in self._parts.items()
            },
            "weights": {name: self._concat_weights(name) for name in self._weights},
            "objects": {
                f"{output}/{name}": get_metric_state(metric)
                for (output, name), metric in self._objects.items()
                if output in self._counted
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._parts = {
            n: [[_decode_evaluation(one)] for one in parts] for n, parts in state["judged"].items()
        }
        self._weights = {name: [weights] for name, weights in state["weights"].items()}
        for (output, name), metric in self._objects.items():
            if (key := f"{output}/{name}") in state["objects"]:
                load(metric, state["objects"][key])
                self._counted.add(output)

    def join(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Take the samples of all processes, in order; nothing was added before."""
        states = list(states)
        for (output, name), metric in self._objects.items():
            if seen := [
                state["objects"][key]
                for state in states
                if (key := f"{output}/{name}") in state["objects"]
            ]:
                join(metric, seen)
                self._counted.add(output)
        for state in states:
            for name, judged in state["judged"].items():
                parts = self._parts.setdefault(name, [[] for _ in judged])
                for own, one in zip(parts, judged, strict=True):
                    own.append(_decode_evaluation(one))
            for name, weights in state["weights"].items():
                self._weights.setdefault(name, []).append(weights)


def check_outputs(metrics: Iterable[str], figures: Iterable[str]) -> None:
    """Raise :class:`ConfigError` if metrics were asked for of an output that has no figures,
    ``output/figure``.
    """
    outputs = sorted({name.partition("/")[0] for name in figures if "/" in name})
    for name in metrics:
        if outputs and name not in outputs:
            known = ", ".join(outputs)
            raise ConfigError(
                f"metrics: no output is called {name!r}; there are "
                f"{known}{suggest_name(name, outputs)}"
            )


def _resolve_metric(metric: str | QualityMetric, task: str) -> QualityMetric:
    """Return a metric of a task by its name."""
    if isinstance(metric, QualityMetric):
        return metric
    known = get_task(task)
    try:
        return known.metric(metric)
    except KeyError:
        names = [one.name for one in known.metrics]
        raise ConfigError(
            f"the task {task!r} has no metric {metric!r}; it has "
            f"{', '.join(names)}{suggest_name(metric, names)}"
        ) from None


def _flatten_figures(name: str, value: Any) -> dict[str, float]:
    """Return figures by name, given a number, a vector of numbers, or such by name."""
    if isinstance(value, Mapping):
        return {
            key: figure
            for below, one in value.items()
            for key, figure in _flatten_figures(f"{name}/{below}", one).items()
        }
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, np.float64)
    if array.ndim > 1:
        raise ConfigError(
            f"metrics: {name} is an array of the shape {array.shape}; a figure of a history is a "
            f"number"
        )
    return (
        {name: float(array)}
        if array.ndim == 0
        else {f"{name}/{n}": float(one) for n, one in enumerate(array)}
    )


def _encode_evaluation(found: Evaluation) -> dict[str, Any]:
    return {
        "task": found.task,
        "arrays": dict(found.arrays),
        "class_names": list(found.class_names),
        "ragged": {
            name: {"values": rows.values, "counts": rows.counts}
            for name, rows in found.ragged.items()
        },
        "settings": dict(found.settings),
    }


def _decode_evaluation(state: Mapping[str, Any]) -> Evaluation:
    ragged = {
        name: Ragged(rows["values"], rows["counts"]) for name, rows in state["ragged"].items()
    }
    return Evaluation(
        state["task"], state["arrays"], tuple(state["class_names"]), ragged, state["settings"]
    )


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
                waiting[f"{name}/scaled"].append(_scale_loss(output))
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
            above = _compute_sums([metric.numerator for metric in counted], sizes)
            below: Iterable[Any]
            if counted[0].denominator is None:
                below = map(float, sizes)
            else:
                below = _compute_sums([metric.denominator for metric in counted], sizes)
            kept = self._sums.setdefault(name, [0.0, 0.0, counted[0].finish])
            for one, other in zip(above, below, strict=True):
                kept[0] = kept[0] + one
                kept[1] = kept[1] + other
        self._waiting.clear()
        self._count = 0

    def figures(self) -> dict[str, float]:
        """Return ``output/metric`` and, first, ``loss``: the sum over outputs of their losses times
        their scales.

        The loss of a single output with no scale is the whole loss, and is given once.
        """
        self.fetch()
        found = {name: compute_figure(*kept) for name, kept in self._sums.items()}
        for name in [
            name for name, value in found.items() if name.endswith("/loss") and math.isnan(value)
        ]:
            # Some outputs are no numbers; a metric that compares or selects might hide that.
            output = name.removesuffix("loss")
            found |= {each: math.nan for each in found if each.startswith(output)}
        scaled = {
            name: f"{name.removesuffix('/loss')}/scaled" for name in found if name.endswith("/loss")
        }
        losses = [found.get(other, found[name]) for name, other in scaled.items()]
        single = [name for name, other in scaled.items() if len(scaled) == 1 and other not in found]
        shown = {
            name: value
            for name, value in found.items()
            if not name.endswith("/scaled") and name not in single
        }
        shown |= {} if self._whole is None else self._whole.figures()
        return {"loss": math.fsum(losses) if losses else math.nan} | shown

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        self.fetch()
        state: dict[str, Any] = {
            name: [np.asarray(above), np.asarray(below), finish]
            for name, (above, below, finish) in self._sums.items()
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
            for name, (above, below, finish) in (
                (n, kept) for n, kept in state.items() if n != WHOLE
            ):
                kept = self._sums.setdefault(name, [0.0, 0.0, finish])
                kept[0] = kept[0] + above
                kept[1] = kept[1] + below


def _scale_loss(output: Any) -> Metric:
    loss = output.loss_metric()
    return Metric(loss.numerator * output.scale, loss.denominator)


def _compute_sums(tensors: list[Any], sizes: list[int]) -> Any:
    """Return the sum of each tensor over its first axis, as float64 ``(batches, ...)``."""
    import torch

    values = torch.cat(tensors).cpu().double().numpy()
    return np.add.reduceat(values, np.cumsum([0, *sizes[:-1]]), axis=0)
