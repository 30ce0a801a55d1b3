"""The settings on which the weights of a training depend, as values that can be compared and
shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from nnpipe.core.component import Component

_HOW = frozenset({"params", "foreach", "fused", "capturable", "differentiable", "initial_lr"})
"""The settings of PyTorch's groups that say how, not what, to compute."""

_LONGEST = 200  # characters of a setting


def to_json_value(value: Any) -> Any:
    """Return a value as JSON represents it."""
    return json.loads(json.dumps(value, default=repr))


def get_class_path(value: Any) -> str:
    """Return the dotted path of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def describe_optimiser(optimiser: Any) -> dict[str, Any]:
    """Return the class of a PyTorch optimiser, and the settings of each of its groups."""
    groups = [
        {name: _to_simple_value(value) for name, value in group.items() if name not in _HOW}
        | {"weights": len(group["params"])}
        for group in optimiser.param_groups
    ]
    one = groups[0] if len(groups) == 1 else {f"group {n}": group for n, group in enumerate(groups)}
    return {"class": get_class_path(optimiser), **one}


def describe_schedule(schedule: Any, made: Any, steps: int | None) -> dict[str, Any]:
    """Return the class and the settings of a schedule; ``made`` is PyTorch's scheduler, if it is
    one.
    """
    if schedule is None:
        return {"class": "none"}
    if made is not None:
        state = {
            name: value for name, value in made.state_dict().items() if not name.startswith("_")
        }
        return {"class": get_class_path(made), "per": schedule.per} | {
            name: value
            for name, value in state.items()
            if isinstance(value, (int, float, str)) or _is_number_list(value)
        }
    length = {"steps of the training": steps} if schedule.of_length else {}
    return {
        "class": get_class_path(schedule),
        **(schedule.to_json() if isinstance(schedule, Component) else {}),
        **length,
    }


def describe_data(datasets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of the sequences, and how it is cut into batches."""
    return {
        f"{name}/{split}": _describe_sequence(part)
        for name, parts in datasets.items()
        for split, part in parts.items()
    }


def _describe_sequence(sequence: Any) -> dict[str, Any]:
    if hasattr(sequence, "fingerprint"):
        return dict(sequence.fingerprint())
    found: dict[str, Any] = {"class": get_class_path(sequence)}
    with suppress(TypeError):  # of unknown length
        found["batches"] = len(sequence)
    return found


def describe_structure(model: Any) -> dict[str, str]:
    """Return each layer of a ``torch.nn.Module`` with its settings, and the parameters outside
    of layers.
    """
    found = {}
    for name, layer in model.named_modules():
        shapes = [f"{n} {tuple(p.shape)}" for n, p in layer.named_parameters(recurse=False)]
        shapes += [f"{n} {tuple(b.shape)}" for n, b in layer.named_buffers(recurse=False)]
        settings = ", ".join(part for part in (layer.extra_repr(), *shapes) if part)
        if settings or name:
            found[name or "model"] = f"{_get_layer_class(layer).__name__}({settings})"[:_LONGEST]
    return found


def _get_layer_class(layer: Any) -> type:
    """Return a layer's class, also if its weights are divided over processes, for which PyTorch
    changes the class.
    """
    return next(
        one
        for one in type(layer).__mro__
        if not one.__module__.startswith("torch.distributed.fsdp")
    )


def describe_keras(model: Any, optimiser: Any) -> dict[str, Any]:
    """Return a Keras optimiser's settings and the layers of a ``keras.Model``, without Keras's
    automatic names.
    """
    layers = {}
    for number, layer in enumerate(getattr(model, "layers", ())):
        config = layer.get_config()
        settings = {
            n: v
            for n, v in config.items()
            if n != "name" and isinstance(v, (int, float, str, bool))
        }
        shapes = [list(variable.shape) for variable in layer.weights]
        layers[f"{number} {type(layer).__name__}"] = f"{settings} {shapes}"
    settings = {name: value for name, value in optimiser.get_config().items() if name != "name"}
    return {"optimiser": {"class": type(optimiser).__name__, **settings}, "structure": layers}


def iter_differences(
    stored: Mapping[str, Any], now: Mapping[str, Any], newer: frozenset[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name, the stored value and the present value of each setting that differs.

    Parameters
    ----------
    stored, now
        Settings, nested to any depth.
    newer
        Top-level names that an older record may lack; they are not compared then.
    """
    for name in {**stored, **now}:
        if name in newer and name not in stored:
            continue
        was, comes = stored.get(name), now.get(name)
        if was == comes:
            continue
        if isinstance(was, Mapping) and isinstance(comes, Mapping):
            for below, *values in iter_differences(was, comes, frozenset()):
                yield f"{name}.{below}", values[0], values[1]
        else:
            yield name, was, comes


def _to_simple_value(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str, list, tuple))
        else get_class_path(value)
    )


def _is_number_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
