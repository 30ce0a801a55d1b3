"""Values of callbacks: tensors and arrays alike, histograms, figures by step, and the layers of
models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.files import replace_atomically
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import get_run_folder

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


def to_array(value: Any) -> np.ndarray:
    """Return a tensor or an array as a numpy array, fetched from its device."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def join_arrays(values: Sequence[Any]) -> np.ndarray:
    """Join tensors or arrays along their first axis into one array; tensors are fetched in one
    transfer.
    """
    if not hasattr(values[0], "detach"):
        return np.concatenate([np.asarray(value) for value in values])
    import torch

    return to_array(torch.cat([value.to(values[0].device) for value in values]))


_BINS = 40


def compute_histograms(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return histograms of the finite values of tensors, in 40 bins each from the least to the
    greatest value.

    The result has ``names``, ``edges (n, 41)`` and ``counts (n, 40)``; a tensor without values is
    left out.
    """
    names, edges, counts = [], [], []
    for name, tensor in named.items():
        values = tensor.detach().float().cpu().numpy().ravel()
        values = values[np.isfinite(values)]
        if values.size:
            own, limits = np.histogram(values, _BINS)
            names.append(name)
            counts.append(own)
            edges.append(limits.astype(np.float64))
    return {"names": names, "edges": np.array(edges), "counts": np.array(counts, np.int64)}


def write_histograms(fit: TrainingRun, name: str, found: Mapping[str, Any], step: int) -> None:
    """Write the result of :func:`compute_histograms`, and its step, as ``tables/NAME.npz``."""
    arrays = {
        "names": np.array(found["names"], np.str_),
        "edges": found["edges"],
        "counts": found["counts"],
    }
    with (
        replace_atomically(get_run_folder(fit).table(name, ending="npz")) as path,
        path.open("wb") as file,
    ):
        np.savez_compressed(file, **arrays, step=np.array(step))


class Trace(State):
    """Values by step; in a long training, of every 2nd, 4th, 8th, ... step only.

    Which steps are kept depends only on their numbers, so a resumed training keeps the same ones.

    Parameters
    ----------
    most
        The greatest number of values to keep.
    """

    stride: int
    steps: list[int]
    values: list[Any]

    def __init__(self, most: int = 2000) -> None:
        super().__init__(stride=1, steps=[], values=[])
        object.__setattr__(self, "_most", most)

    def add(self, step: int, value: Any) -> None:
        """Add the value of a step, from 1; a tensor is kept as it is until :meth:`fetch`."""
        if (step - 1) % self.stride or (self.steps and step <= self.steps[-1]):
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > self._most:
            self.stride *= 2
            kept = [n for n, at in enumerate(self.steps) if (at - 1) % self.stride == 0]
            self.steps, self.values = [self.steps[n] for n in kept], [self.values[n] for n in kept]

    def fetch(self) -> None:
        """Turn all tensors into numbers, with one transfer for all."""
        waiting = [n for n, value in enumerate(self.values) if not isinstance(value, float)]
        if waiting:
            import torch

            found = torch.stack(
                [torch.as_tensor(self.values[n]).double() for n in waiting]
            ).tolist()
            for n, value in zip(waiting, found, strict=True):
                self.values[n] = value


def iter_leaf_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the innermost layers with their names; a model without layers yields itself."""
    for name, layer in model.named_modules():
        if next(layer.children(), None) is None:
            yield name or type(layer).__name__, layer


def describe_keras_layers(model: Any) -> tuple[list[dict[str, Any]], int, int]:
    """Return a row for each innermost layer, the number of parameters, and the number of trainable
    ones.

    Layers are in the order in which they were declared.  Parameters that
    several layers share are counted with the first.
    """
    rows, counted = [], set()
    # Keras has no public way to the layers within layers.
    for layer in model._flatten_layers(include_self=False, recursive=True):
        if any(True for _ in layer._flatten_layers(include_self=False)):
            continue
        own = [v for v in layer.weights if id(v) not in counted]
        counted |= {id(v) for v in own}
        trainable = {id(v) for v in layer.trainable_weights}
        rows.append(
            {
                # one without weights has no path
                "layer": getattr(layer, "path", None) or layer.name,
                "type": type(layer).__name__,
                "output": _get_output_shape(layer),
                "parameters": sum(_size(v) for v in own),
                "trainable": sum(_size(v) for v in own if id(v) in trainable),
            }
        )
    rows = [row for row in rows if row["type"] != "InputLayer"]
    return rows, sum(map(_size, model.weights)), sum(map(_size, model.trainable_weights))


def find_nonfinite_weights(model: Any) -> list[str]:
    """Return the names of a Keras model's weights that hold NaN or infinity."""
    return [
        v.path for v in model.weights if not np.isfinite(np.asarray(v.numpy(), np.float64)).all()
    ]


def _size(variable: Any) -> int:
    return math.prod(variable.shape)


def _get_output_shape(layer: Any) -> Any:
    try:
        output = layer.output
    # a layer that was never called by itself, or several times
    except (AttributeError, ValueError):
        return None
    tensors = output if isinstance(output, (list, tuple)) else [output]
    shapes = [list(tensor.shape) for tensor in tensors if hasattr(tensor, "shape")]
    return shapes[0] if len(shapes) == 1 else shapes
