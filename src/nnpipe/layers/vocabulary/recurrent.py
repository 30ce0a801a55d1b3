"""Recurrent layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.activations import ACTIVATION, ActivationFunction
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, Initialiser, Orthogonal
from nnpipe.layers.vocabulary.layer import LayerVariable, Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.normalisation import parameters
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import FlagKind, IntegerKind, NumberKind
from nnpipe.layers.vocabulary.weighted_layer import Kernelled, get_activation, get_weight_settings


class Recurrent(Kernelled):
    """Base of recurrent layers.

    Parameters
    ----------
    units
        Number of features of the state.
    activation
        Function applied to the new state.
    recurrent_initializer
        Initial values of the recurrent kernel.
    recurrent_regularizer
        Penalty on the recurrent kernel that is added to the loss.
    recurrent_constraint
        Constraint on the recurrent kernel, applied after each training step.
    dropout
        Fraction of the inputs set to zero in training.
    recurrent_dropout
        Fraction of the state set to zero in training.
    return_sequences
        Whether the state of every step is returned instead of the last one.
    return_state
        Whether the last states are returned as further outputs.
    go_backwards
        Whether steps are read from the last to the first.
    stateful
        Whether each batch continues from the states of the previous one.
    unroll
        Whether Keras unrolls the loop over steps.
    seed
        Seed of the dropout, used by Keras alone; ``None`` draws one.
    """

    abstract: ClassVar[bool] = True
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"implementation", "zero_output_for_mask", "use_cudnn", "input_dim", "input_length"}
    )
    resting: ClassVar[bool] = True
    called: ClassVar[tuple[str, ...]] = ("sequences", "initial_state")
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    units: int = row(IntegerKind())
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction("tanh")
    )
    recurrent_initializer: Initialiser | Raw | str = row(INITIALISER, default=Orthogonal())
    recurrent_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    recurrent_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)
    dropout: float = row(NumberKind(0, 1), default=0.0)
    recurrent_dropout: float = row(NumberKind(0, 1), default=0.0)
    return_sequences: bool = row(FlagKind(), default=False)
    return_state: bool = row(FlagKind(), default=False)
    go_backwards: bool = row(FlagKind(), default=False)
    stateful: bool = row(FlagKind(), default=False)
    unroll: bool = row(FlagKind(), default=False)
    seed: int | None = row(IntegerKind(0, 2**63 - 1, optional=True), default=None)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        shape, *initial = shapes
        if len(shape) != 3:
            raise Misfit(f"takes samples, steps and features, not {shape}")
        require_static(shape[2], "the number of features")
        if len(initial) not in (0, self.states) or any(s[1:] != (self.units,) for s in initial):
            raise Misfit(
                f"starts from {self.states} states of {self.units}, not from {tuple(initial)}"
            )
        state = (shape[0], self.units)
        first = (shape[0], shape[1], self.units) if self.return_sequences else state
        return (first, *[state] * self.states) if self.return_state else (first,)

    def _describe_bias(self) -> LayerVariable:
        return LayerVariable("bias", (self.gates * self.units,), *get_weight_settings(self, "bias"))

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        width = self.gates * self.units
        into = require_static(shapes[0][2], "the number of features")
        found = [
            LayerVariable("kernel", (into, width), *get_weight_settings(self, "kernel")),
            LayerVariable(
                "recurrent_kernel", (self.units, width), *get_weight_settings(self, "recurrent")
            ),
        ]
        found += [self._describe_bias()] if self.use_bias else []
        return tuple(dataclasses.replace(v, place=f"cell/vars/{i}") for i, v in enumerate(found))

    def limits(self, backend: str) -> Iterable[str]:
        """No state is kept from one batch to the next in PyTorch."""
        return (
            ["states kept between batches (stateful) are not offered"]
            if self.stateful and backend == "torch"
            else []
        )

    def _compute_next_states(
        self, weights: Any, x: Any, states: tuple[Any, ...], h: Any
    ) -> tuple[Any, ...]:
        """Return the next states; ``x`` is one step times the kernel, ``h`` the last output
        after dropout.
        """
        raise NotImplementedError

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(self._run, parameters(self.variables(*shapes)))

    def _run(self, module: Any, x: Any, *initial: Any) -> Any:
        import torch
        import torch.nn.functional as F

        weights = module.core
        if self.go_backwards:
            x = x.flip(1)
        training = module.training
        # One mask for all steps, as Gal and Ghahramani 2016 have it
        # (https://arxiv.org/abs/1512.05287).
        x = x * F.dropout(torch.ones_like(x[:, :1]), self.dropout, training)
        states = initial or tuple(x.new_zeros(x.shape[0], self.units) for _ in range(self.states))
        mask = F.dropout(torch.ones_like(states[0]), self.recurrent_dropout, training)
        projected = x @ weights["kernel"]
        if self.use_bias:
            bias = weights["bias"]
            projected = projected + (bias[0] if bias.ndim == 2 else bias)
        outputs = []
        for step in projected.unbind(1):
            states = self._compute_next_states(weights, step, states, states[0] * mask)
            outputs.append(states[0])
        first = torch.stack(outputs, 1) if self.return_sequences else states[0]
        return (first, *states) if self.return_state else first


class SimpleRNN(Recurrent):
    """A simple recurrent layer, whose output is fed back as its state."""

    keras: ClassVar[str] = "SimpleRNN"
    takes: ClassVar[tuple[int, int | None]] = (1, 2)

    def _compute_next_states(
        self, weights: Any, x: Any, states: tuple[Any, ...], h: Any
    ) -> tuple[Any, ...]:
        return (get_activation(self)(x + h @ weights["recurrent_kernel"]),)


class _Gated(Recurrent):
    """Base of recurrent layers with gates.

    Parameters
    ----------
    recurrent_activation
        Function applied to the gates.
    """

    recurrent_activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction("sigmoid"), kw_only=True
    )


class LSTM(_Gated):
    """Long short-term memory, Hochreiter and Schmidhuber 1997, with a forget gate.

    Parameters
    ----------
    unit_forget_bias
        Whether the bias of the forget gate starts at 1.
    """

    keras: ClassVar[str] = "LSTM"
    aliases: ClassVar[tuple[str, ...]] = ("LSTMV1", "LSTMV2", "UnifiedLSTM")
    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    takes: ClassVar[tuple[int, int | None]] = (1, 3)
    unit_forget_bias: bool = row(FlagKind(), default=True, kw_only=True)

    def _describe_bias(self) -> LayerVariable:
        bias = super()._describe_bias()
        if self.unit_forget_bias and isinstance(bias.initialiser, Initialiser):
            return dataclasses.replace(bias, initialiser=_Remembering(bias.initialiser))
        return bias

    def _compute_next_states(
        self, weights: Any, x: Any, states: tuple[Any, ...], h: Any
    ) -> tuple[Any, ...]:
        gate, activation = get_activation(self, "recurrent_activation"), get_activation(self)
        i, f, c, o = (x + h @ weights["recurrent_kernel"]).chunk(4, -1)
        memory = gate(f) * states[1] + gate(i) * activation(c)
        return gate(o) * activation(memory), memory


class GRU(_Gated):
    """Gated recurrent unit, Cho et al. 2014 (https://arxiv.org/abs/1406.1078).

    Parameters
    ----------
    reset_after
        Whether the reset gate is applied after the matrix product with the state, as cuDNN does.
    """

    keras: ClassVar[str] = "GRU"
    aliases: ClassVar[tuple[str, ...]] = ("GRUV1", "GRUV2", "UnifiedGRU")
    gates: ClassVar[int] = 3
    takes: ClassVar[tuple[int, int | None]] = (1, 2)
    reset_after: bool = row(FlagKind(), default=True, kw_only=True)

    def _describe_bias(self) -> LayerVariable:
        bias = super()._describe_bias()
        return dataclasses.replace(bias, shape=(2, *bias.shape)) if self.reset_after else bias

    def _compute_next_states(
        self, weights: Any, x: Any, states: tuple[Any, ...], h: Any
    ) -> tuple[Any, ...]:
        gate, activation, u = (
            get_activation(self, "recurrent_activation"),
            get_activation(self),
            self.units,
        )
        kernel = weights["recurrent_kernel"]
        xz, xr, xh = x.chunk(3, -1)
        if self.reset_after:
            inner = h @ kernel
            if self.use_bias:
                inner = inner + weights["bias"][1]
            hz, hr, hh = inner.chunk(3, -1)
            update, reset = gate(xz + hz), gate(xr + hr)
            new = activation(xh + reset * hh)
        else:
            hz, hr = (h @ kernel[:, : 2 * u]).chunk(2, -1)
            update, reset = gate(xz + hz), gate(xr + hr)
            new = activation(xh + (reset * h) @ kernel[:, 2 * u :])
        return (update * states[0] + (1 - update) * new,)


class _Remembering(Initialiser):
    """The bias of an LSTM with ones at the forget gate, Jozefowicz et al. 2015."""

    inner: Any = row(INITIALISER)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        values = self.inner.draw(shape, random).copy()
        values[shape[0] // 4 : shape[0] // 2] = 1
        return values
