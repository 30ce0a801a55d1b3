"""Finding where the first NaN or infinity occurs."""

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
    """Name the layer or the parameter in which NaN or infinity occurred first.

    The trainer itself stops when the loss is not finite.  This callback checks each
    layer's output and logs the name of the first bad layer as an error.  It also
    checks each gradient, and stops the training before the loss is affected.  It
    fetches results from the device only every few steps.

    Keras gives no access to gradients, so there it checks the weights after a step.

    Parameters
    ----------
    every
        Check the gradients every so many steps; on a GPU each check makes the host wait.
    layers
        Whether to check the layers, too, which costs a pass over each output at each step.
        Layers of a compiled model cannot be checked.
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
        """Hook the layers."""
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
        """Forget the layers of the last batch, in which all was well."""
        self._finite = {}

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Check the gradients every ``every`` steps."""
        self._finite = {}
        # A scaler skips steps with infinite gradients; this is how it finds its scale.
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
        """Log the bad layer if the training ended within a batch, and remove the hooks."""
        bad = [name for name, finite in self._finite.items() if not bool(finite)]
        if bad and self._log is not None:
            self._log.error("the first layer whose output is not finite is %s", bad[0])
        self._finite = {}
        while self._handles:
            self._handles.pop().remove()
