"""The architecture's half of a differentiable search, between the steps of the weights."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.architectures.training import Features
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.fit import Fit

_BETAS = (0.5, 0.999)  # of Adam (Liu et al. 2019)
_SMALL = 0.01  # of the finite difference, divided by the norm of the gradient (Liu et al. 2019)
_JUDGED = 128  # samples of which the Hessian is taken
_ITERATIONS, _TOLERANCE = 10, 1e-2  # of the power iteration


class ArchitectureSteps(Callback):
    """Takes a step of the architecture before each step of the weights, and notes shares and eigenvalues by epoch.

    Parameters
    ----------
    alpha
        The architecture's parameters.
    validation
        The samples whose loss the architecture descends.
    order
        1 or 2; see :func:`nnpipe.architectures.darts.darts`.
    batch
        Samples in a batch.
    rate, decay
        Of Adam.
    """

    abstract: ClassVar[bool] = True  # it is only part of searches

    def __init__(
        self, alpha: Any, validation: Features, *, order: Literal[1, 2], batch: int, rate: float, decay: float
    ) -> None:
        import torch

        self._validation = {name: torch.from_numpy(np.asarray(values)) for name, values in validation.items()}
        self._count = len(next(iter(self._validation.values())))
        if self._count < batch:
            raise ConfigError(f"batches of {batch} samples need at least as many samples to validate with")
        self._order, self._batch = order, batch
        self.adam = torch.optim.Adam([alpha], lr=rate, betas=_BETAS, weight_decay=decay)
        self.state = State(shares=[], eigenvalues=[], vector=[])

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Take a step of the architecture."""
        import torch

        model, validation = fit.model, self._batch_of(fit)
        if self._order == 1:
            (gradient,) = torch.autograd.grad(_loss(model, validation), [model.alpha])
        else:
            gradient = unrolled_gradient(model, batch, validation, fit.optimiser)
        model.alpha.grad = gradient
        self.adam.step()
        model.alpha.grad = None

    def on_epoch_end(self, fit: Fit) -> None:
        """Note the shares and the dominant eigenvalue."""
        model = fit.model
        model.train()
        self.state.shares = [*self.state.shares, model.shares().detach().tolist()]
        judged = {name: values[:_JUDGED] for name, values in self._validation.items()}
        eigenvalue, vector = dominant_eigenvalue(_loss(model, judged), model.alpha, self.state.vector)
        self.state.eigenvalues = [*self.state.eigenvalues, eigenvalue]
        self.state.vector = vector

    def _batch_of(self, fit: Fit) -> dict[str, Any]:
        """Return a validation batch; which one depends on the seed and the step only."""
        batches = self._count // self._batch
        turn, place = divmod(fit.step, batches)
        order = fit.generator("architecture", turn).permutation(self._count)
        chosen = order[place * self._batch : (place + 1) * self._batch]
        return {name: values[chosen] for name, values in self._validation.items()}


def _loss(model: Any, batch: dict[str, Any]) -> Any:
    return sum(output.loss() for output in model(batch).values())


def unrolled_gradient(model: Any, train: dict[str, Any], validation: dict[str, Any], optimiser: Any) -> Any:
    """Return the architecture's gradient of the validation loss after a step of the weights (equations 7 and 8)."""
    import torch

    weights = model.weights()
    kept = [weight.detach().clone() for weight in weights]
    group = optimiser.param_groups[0]
    rate, momentum, decay = group["lr"], group.get("momentum", 0.0), group["weight_decay"]
    gradients = torch.autograd.grad(_loss(model, train), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            moved = optimiser.state.get(weight, {}).get("momentum_buffer")
            direction = gradient + decay * weight + (momentum * moved if moved is not None else 0.0)
            weight.sub_(rate * direction)
    direct, *at = torch.autograd.grad(_loss(model, validation), [model.alpha, *weights])
    norm = torch.sqrt(sum(each.square().sum() for each in at))
    small = _SMALL / norm.clamp_min(1e-12)
    sides = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for weight, before, gradient in zip(weights, kept, at, strict=True):
                weight.copy_(before + sign * small * gradient)
        sides.append(torch.autograd.grad(_loss(model, train), [model.alpha])[0])
    with torch.no_grad():
        for weight, before in zip(weights, kept, strict=True):
            weight.copy_(before)
    return direct - rate * (sides[0] - sides[1]) / (2 * small)


def dominant_eigenvalue(loss: Any, alpha: Any, start: list[float]) -> tuple[float, list[float]]:
    """Return the eigenvalue of a loss's Hessian with the greatest absolute value, and its vector, by power iteration.

    Parameters
    ----------
    loss
        A scalar tensor.
    alpha
        The parameters.
    start
        The vector to begin with, such as that of the last epoch; empty for any.
    """
    import torch

    (gradient,) = torch.autograd.grad(loss, [alpha], create_graph=True)
    count = alpha.numel()
    drawn = np.random.default_rng(0).standard_normal(count)
    vector = torch.tensor(start or drawn.tolist(), dtype=alpha.dtype).reshape(alpha.shape)
    vector = vector / vector.norm().clamp_min(1e-12)
    value = 0.0
    for _ in range(_ITERATIONS):
        (product,) = torch.autograd.grad(gradient, [alpha], grad_outputs=vector, retain_graph=True)
        before, value = value, float((product * vector).sum())
        norm = product.norm()
        if float(norm) == 0.0:
            break
        vector = product / norm
        if abs(value - before) <= _TOLERANCE * abs(value):
            break
    return value, vector.flatten().tolist()
