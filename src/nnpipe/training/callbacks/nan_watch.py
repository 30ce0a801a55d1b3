"""Where the first NaN or infinity comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import TrainingError
from nnpipe.training.callbacks._keras import not_finite
from nnpipe.training.callbacks._layers import leaves
from nnpipe.training.callbacks.callback import Callback

if TYPE_CHECKING:
    import logging

    from nnpipe.training.fit import Fit


class NanWatch(Callback):
    """Name the layer or the parameter in which NaN or infinity came up first.

    The trainer stops by itself when the loss is no number.  This looks into
    each layer's output, whose name it logs as an error then, and into each
    gradient, for which it stops the training before the loss shows it.  Nothing
    is fetched from the device but every few steps.

    Keras hands no gradients out: there it looks at the weights after a step.

    Parameters
    ----------
    every
        Steps between two looks at the gradients; on a GPU each look makes the host wait.
    layers
        Whether to look into the layers, too: a pass over each output, at each step.
        Layers of a compiled model are not seen.
    """

    frameworks = ("torch", "keras")

    def __init__(self, every: int = 20, layers: bool = True) -> None:
        check_call(NanWatch, locals())
        self.every = every
        self.layers = layers
        self._handles: list[Any] = []
        self._finite: dict[str, Any] = {}
        self._log: logging.Logger | None = None

    def on_fit_begin(self, fit: Fit) -> None:
        """Listen to the layers."""
        self._log = fit.log
        if self.layers and not fit.options.compile and fit.framework == "torch":
            for name, layer in leaves(fit.model):
                self._handles.append(layer.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        import torch

        def look(layer: Any, arguments: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                self._finite[name] = torch.isfinite(output.detach()).all()

        return look

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Forget the last batch, which was a good one."""
        self._finite = {}

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Look at the gradients, now and then."""
        self._finite = {}
        # A scaler passes over steps whose gradients are infinite; that is its way of finding its scale.
        if fit.step % self.every or fit.options.precision == "float16":
            return
        if fit.framework == "keras":
            weights = not_finite(fit.model)
            if weights:
                raise TrainingError(f"the weight {', '.join(weights[:5])} is not finite; use a smaller learning rate")
            return
        import torch

        named = [(n, p.grad) for n, p in fit.model.named_parameters() if p.grad is not None]
        if not named:
            return
        finite = torch.stack([torch.isfinite(gradient).all() for _, gradient in named]).tolist()
        if not all(finite):
            names = [name for (name, _), good in zip(named, finite, strict=True) if not good]
            raise TrainingError(f"the gradient of {', '.join(names[:5])} is not finite; the loss may still be")

    def close(self) -> None:
        """Name the layer where the training ended amid a batch, and listen no more."""
        bad = [name for name, finite in self._finite.items() if not bool(finite)]
        if bad and self._log is not None:
            self._log.error("the first layer whose output is not finite is %s", bad[0])
        self._finite = {}
        while self._handles:
            self._handles.pop().remove()
