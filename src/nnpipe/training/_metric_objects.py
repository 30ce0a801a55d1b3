"""Metrics that are objects with a state, as those of torchmetrics: copied, stored, and joined over processes.

torchmetrics exchanges states by itself when it computes, but not where a process has had no samples: that process has
no arrays of the right shape and kind to send, and the others wait or read nonsense.  So states are exchanged with the
trainer's other sums, and reduced here in the ways that the objects declare.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

METHODS = ("update", "compute", "reset", "state_dict", "load_state_dict")


def is_object(metric: Any) -> bool:
    """Return whether a metric is an object with a state."""
    return all(hasattr(metric, method) for method in METHODS)


def is_joinable(metric: Any) -> bool:
    """Return whether an object says how its states of several processes become one."""
    return bool(_parts(metric))


def unfolded(name: str, metric: Any) -> dict[str, Any]:
    """Return an object by its name, and the members of a collection of torchmetrics by theirs.

    Members with equal states share one within a collection, which the states that it gives to be stored do not have.
    """
    if hasattr(metric, "compute_groups") and hasattr(metric, "items"):
        return {f"{name}/{key}": one for key, one in metric.items()}
    return {name: metric}


def fresh(metric: Any) -> Any:
    """Return a copy of an object, without samples."""
    found = copy.deepcopy(metric)
    found.reset()
    if hasattr(found, "persistent"):
        found.persistent(True)  # torchmetrics: its state is part of state_dict
    for part in _parts(found).values():
        part.distributed_available_fn = _never
    return found


def _never() -> bool:
    """Return that nothing is to be exchanged, in place of the function that torchmetrics asks."""
    return False


def state_of(metric: Any) -> dict[str, Any]:
    """Return the state of an object, on the CPU."""
    state = {name: _on_cpu(value) for name, value in metric.state_dict().items()}
    return {"state": state, "updates": {name: part._update_count for name, part in _parts(metric).items()}}


def load(metric: Any, state: Mapping[str, Any]) -> None:
    """Restore what :func:`state_of` returned."""
    metric.load_state_dict(dict(state["state"]))
    for name, part in _parts(metric).items():
        part._update_count = state["updates"][name]  # torchmetrics warns of a metric that was never updated


def join(metric: Any, states: Iterable[Mapping[str, Any]]) -> None:
    """Set a fresh object to the state that it would have after the samples of all states, in their order."""
    states = list(states)
    for name, part in _parts(metric).items():
        seen = [one["state"] for one in states if one["updates"][name]]
        for attribute, reduce in part._reductions.items() if seen else ():
            values = [one[f"{name}.{attribute}" if name else attribute] for one in seen]
            setattr(part, attribute, _reduced(values, reduce))
        part._update_count = sum(one["updates"][name] for one in states)


def _parts(metric: Any) -> dict[str, Any]:
    """Return the objects of torchmetrics that an object consists of, by name."""
    modules = metric.named_modules() if hasattr(metric, "named_modules") else ()
    return {name: module for name, module in modules if hasattr(module, "_reductions")}


def _reduced(values: list[Any], reduce: Any) -> Any:
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
