"""A table of a model's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.files import write_text
from nnpipe.training.callbacks._keras import keras_layers
from nnpipe.training.callbacks._layers import leaves
from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class ModelSummary(WritingCallback):
    """List the innermost layers, with the shapes of their outputs and the numbers of their parameters.

    Shapes are those of the first training batch.  Layers are in the order in
    which they ran; those that did not run come last.  Parameters that several
    layers share are counted with the first.  Writes ``tables/model.txt`` and ``tables/model.json``.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingModelSummary",)

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._shapes: dict[str, Any] = {}

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Hook the layers for the first batch."""
        if fit.epoch == 1 and fit.batch == 0 and fit.framework == "keras":
            self._write(fit, type(fit.model).__name__, *keras_layers(fit.model))
        elif fit.epoch == 1 and fit.batch == 0:
            for name, layer in leaves(fit.model):
                self._handles.append(layer.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        def record(layer: Any, arguments: Any, output: Any) -> None:
            self._shapes[name] = _shape(output)

        return record

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Write the summary of the first batch."""
        if not self._handles:
            return
        self.close()
        layers = dict(leaves(fit.model))
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
                {"layer": "", "type": "others", "output": None, "parameters": rest,
                 "trainable": free - sum(row["trainable"] for row in rows)}
            )  # fmt: skip
        self._write(fit, type(fit.model).__name__, rows, total, free)

    def _write(self, fit: Fit, model: str, rows: list[dict[str, Any]], total: int, free: int) -> None:
        write_table(fit, "model", rows)
        write_text(folder_of(fit).table("model", ending="txt"), _text(model, rows, total, free))

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()


def _shape(output: Any) -> Any:
    if isinstance(output, dict):
        return {name: _shape(value) for name, value in output.items()}
    if isinstance(output, (list, tuple)):
        return [_shape(value) for value in output]
    return list(output.shape) if hasattr(output, "shape") else type(output).__name__


def _text(model: str, rows: list[dict[str, Any]], total: int, free: int) -> str:
    cells = [("layer", "type", "output", "parameters")]
    cells += [
        (row["layer"], row["type"], "-" if row["output"] is None else str(row["output"]), f"{row['parameters']:,}")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(line[:3], widths, strict=False)) + f"  {line[3]:>{widths[3]}}"
             for line in cells]  # fmt: skip
    return "\n".join([model, *lines, f"{total:,} parameters, {free:,} of them trainable"]) + "\n"
