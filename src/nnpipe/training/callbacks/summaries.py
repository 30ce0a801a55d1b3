"""Summaries of the data and of the layers of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.files import write_text
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._arrays import describe_keras_layers, iter_leaf_layers
from nnpipe.training.callbacks.callback import WritingCallback, get_run_folder, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun

_CLASSES = 256


class DatasetSummary(WritingCallback):
    """Count samples and summarise each feature: shape, type, mean, standard deviation, minimum,
    maximum and classes.

    It inspects the batches of the first epoch during training, so it includes
    augmentation.  A feature with one whole number from 0 to 255 for each sample is
    counted as a class.  Writes ``tables/datasets.json``.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingDatasetSummary",)

    def __init__(self) -> None:
        self.state = State(features={}, samples={})

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Inspect a training batch of the first epoch."""
        if fit.epoch == 1:
            self._add_batch(f"{fit.dataset}/{'+'.join(fit.options.train_splits)}", batch)

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Inspect a batch of the first evaluation."""
        if fit.epoch == fit.options.evaluate_every or (
            fit.epoch == fit.options.num_epochs < fit.options.evaluate_every
        ):
            self._add_batch(f"{dataset}/{split}", batch)

    def _add_batch(self, split: str, batch: dict[str, Any]) -> None:
        state = self.state
        state.samples[split] = state.samples.get(split, 0) + len(batch["sample_id"])
        features = state.features.setdefault(split, {})
        for name, value in batch.items():
            if name == "sample_id":
                continue
            numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
            if not numbers and not hasattr(value, "detach"):
                features[name] = {"type": type(value).__name__}
                continue
            found = _compute_array_figures(value) if numbers else _compute_tensor_figures(value)
            shape, size = list(value.shape[1:]), math.prod(value.shape)
            kind = str(value.dtype).removeprefix("torch.")
            known = features.setdefault(name, {"type": kind, "shape": shape, "count": 0})
            if known["shape"] != shape:
                known["shape"] = None  # it varies from batch to batch
            known["count"] += size
            known |= {
                figure: _merge_figure(figure, one, known.get(figure))
                for figure, one in found.items()
            }

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the table if it has changed."""
        if fit.epoch > max(1, fit.options.evaluate_every) and fit.epoch != fit.options.num_epochs:
            return
        rows = [
            {
                "split": split,
                "samples": self.state.samples[split],
                "features": {n: _describe_feature(f) for n, f in found.items()},
            }
            for split, found in self.state.features.items()
        ]
        write_table(fit, "datasets", rows)


def _compute_tensor_figures(value: Any) -> dict[str, Any]:
    """Return sums of values and squares, minimum, maximum and counts of classes, without fetching
    from the device.

    The minimum is negated, so that it is joined by taking the maximum, too.
    """
    import torch

    values = value.detach().double()
    found = {"sums": torch.stack([values.sum(), values.square().sum()])}
    if values.numel():
        found["ends"] = torch.stack([-values.min(), values.max()])
    if value.dim() == 1 and not value.is_floating_point() and value.dtype != torch.bool:
        # Values outside 0 to 255 are counted in bins of their own, so that nothing has to be
        # fetched to find them.
        found["classes"] = torch.zeros(_CLASSES + 1, dtype=torch.int64, device=value.device)
        places = torch.where((value >= 0) & (value < _CLASSES), value, _CLASSES).long()
        found["classes"].scatter_add_(0, places, torch.ones_like(places))
    return found


def _compute_array_figures(value: np.ndarray) -> dict[str, np.ndarray]:
    """Return the same as :func:`_compute_tensor_figures`, for an array."""
    values = value.astype(np.float64)
    found = {"sums": np.array([values.sum(), np.square(values).sum()])}
    if values.size:
        found["ends"] = np.array([-values.min(), values.max()])
    if value.ndim == 1 and value.dtype.kind in "iu":
        places = np.where((value >= 0) & (value < _CLASSES), value, _CLASSES).astype(np.int64)
        found["classes"] = np.bincount(places, minlength=_CLASSES + 1)
    return found


def _merge_figure(figure: str, one: Any, other: Any) -> Any:
    if other is None:
        return one
    if not isinstance(one, np.ndarray):
        other = other.to(one.device)
    if figure != "ends":
        return one + other
    return np.maximum(one, other) if isinstance(one, np.ndarray) else one.maximum(other)


def _describe_feature(feature: dict[str, Any]) -> dict[str, Any]:
    found = {"type": feature["type"]}
    if not feature.get("count"):
        return found
    total, squares = feature["sums"].tolist()
    mean = total / feature["count"]
    found |= {"shape": feature["shape"], "mean": mean}
    found["deviation"] = max(0.0, squares / feature["count"] - mean**2) ** 0.5
    turned, greatest = feature["ends"].tolist()
    found |= {"least": 0.0 - turned, "greatest": greatest}
    if "classes" in feature:
        counts = feature["classes"].tolist()
        if not counts.pop():
            found["classes"] = {str(number): count for number, count in enumerate(counts) if count}
    return found


class ModelSummary(WritingCallback):
    """List the innermost layers, with the shapes of their outputs and the numbers of their
    parameters.

    Shapes are those of the first training batch.  Layers are in the order in
    which they ran; those that did not run come last.  Parameters that several
    layers share are counted with the first.  Writes ``tables/model.txt`` and ``tables/model.json``.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingModelSummary",)

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._shapes: dict[str, Any] = {}

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Hook the layers for the first batch."""
        if fit.epoch == 1 and fit.batch == 0 and fit.framework == "keras":
            self._write(fit, type(fit.model).__name__, *describe_keras_layers(fit.model))
        elif fit.epoch == 1 and fit.batch == 0:
            for name, layer in iter_leaf_layers(fit.model):
                self._handles.append(layer.register_forward_hook(self._make_hook(name)))

    def _make_hook(self, name: str) -> Any:
        def record(layer: Any, arguments: Any, output: Any) -> None:
            self._shapes[name] = _describe_shape(output)

        return record

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Write the summary of the first batch."""
        if not self._handles:
            return
        self.close()
        layers = dict(iter_leaf_layers(fit.model))
        rows, counted = [], set()
        for name in dict.fromkeys([*self._shapes, *layers]):
            own = [p for p in layers[name].parameters(recurse=False) if id(p) not in counted]
            counted |= {id(p) for p in own}
            rows.append(
                {
                    "layer": name,
                    "type": type(layers[name]).__name__,
                    "output": self._shapes.get(name),
                    "parameters": sum(p.numel() for p in own),
                    "trainable": sum(p.numel() for p in own if p.requires_grad),
                }
            )
        total = sum(p.numel() for p in fit.model.parameters())
        free = sum(p.numel() for p in fit.model.parameters() if p.requires_grad)
        rest = total - sum(row["parameters"] for row in rows)
        if rest:  # parameters that a layer with children holds itself
            rows.append(
                {
                    "layer": "",
                    "type": "others",
                    "output": None,
                    "parameters": rest,
                    "trainable": free - sum(row["trainable"] for row in rows),
                }
            )
        self._write(fit, type(fit.model).__name__, rows, total, free)

    def _write(
        self, fit: TrainingRun, model: str, rows: list[dict[str, Any]], total: int, free: int
    ) -> None:
        write_table(fit, "model", rows)
        write_text(
            get_run_folder(fit).table("model", ending="txt"),
            _format_table(model, rows, total, free),
        )

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()


def _describe_shape(output: Any) -> Any:
    if isinstance(output, dict):
        return {name: _describe_shape(value) for name, value in output.items()}
    if isinstance(output, (list, tuple)):
        return [_describe_shape(value) for value in output]
    return list(output.shape) if hasattr(output, "shape") else type(output).__name__


def _format_table(model: str, rows: list[dict[str, Any]], total: int, free: int) -> str:
    cells = [("layer", "type", "output", "parameters")]
    cells += [
        (
            row["layer"],
            row["type"],
            "-" if row["output"] is None else str(row["output"]),
            f"{row['parameters']:,}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = [
        "  ".join(f"{c:<{w}}" for c, w in zip(line[:3], widths, strict=False))
        + f"  {line[3]:>{widths[3]}}"
        for line in cells
    ]
    return "\n".join([model, *lines, f"{total:,} parameters, {free:,} of them trainable"]) + "\n"
