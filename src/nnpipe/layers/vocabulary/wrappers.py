"""Layers that wrap other layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.torch.network_module import build_layer_module
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts
from nnpipe.layers.vocabulary.recurrent import Recurrent
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, ValueKind


class Nested(ValueKind):
    """A layer as an argument, without inputs of its own; it is read and written with the outer
    layer.
    """

    def __init__(self, base: type[Layer], optional: bool = False) -> None:
        self.base, self.optional = base, optional

    def find_fault(self, value: Any, rank: int) -> str:
        """Return what is wrong with the layer; empty if nothing is."""
        if value is None and self.optional:
            return ""
        if not isinstance(value, self.base):
            return f"must be a layer ({self.base.__name__.strip('_')}), not {value!r}"
        return "; ".join(f"{name} {fault}" for name, fault in value.faults())


class Bidirectional(Layer):
    """Runs a recurrent layer over the steps in both directions.

    Parameters
    ----------
    layer
        The recurrent layer that runs forwards.
    merge_mode
        How the two results are combined: ``"concat"``, ``"sum"``, ``"mul"`` or ``"ave"``; ``None``
        returns both.
    backward_layer
        The layer that runs backwards; ``None`` for a mirrored copy of ``layer``.
    """

    keras: ClassVar[str] = "Bidirectional"
    layer: Layer = row(Nested(Recurrent))
    merge_mode: str | None = row(
        ChoiceKind(("concat", "sum", "mul", "ave"), optional=True), default="concat"
    )
    backward_layer: Layer | None = row(Nested(Recurrent, optional=True), default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.layer, Recurrent):
            name = self.layer.name.removeprefix("forward_")  # which Keras adds itself
            object.__setattr__(self, "layer", self.layer.alone(name=name))
        if isinstance(self.layer, Recurrent) and isinstance(self.backward_layer, Recurrent):
            other = self.backward_layer.alone(
                name=self.backward_layer.name.removeprefix("backward_")
            )
            object.__setattr__(
                self, "backward_layer", None if other == self._make_backward_layer() else other
            )

    def _make_backward_layer(self) -> Any:
        layer: Any = self.layer
        return layer.alone(go_backwards=not layer.go_backwards)

    @property
    def _pair(self) -> tuple[Any, Any]:
        return self.layer, self.backward_layer or self._make_backward_layer()

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        forward, backward = self._pair
        for name in ("return_sequences", "return_state"):
            if getattr(forward, name) != getattr(backward, name):
                yield "backward_layer", f"must have the same {name}"
        if forward.return_state:
            yield "layer", "may not give its states (return_state) in two directions"

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        forward, backward = self._pair
        (one,), (two,) = forward.shapes(*shapes), backward.shapes(*shapes)
        if self.merge_mode is None:
            return one, two
        if self.merge_mode == "concat":
            return ((*one[:-1], forward.units + backward.units),)
        if one != two:
            raise Misfit(f"cannot merge {one} and {two}")
        return (one,)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return tuple(
            dataclasses.replace(
                v,
                name=f"{side}/{v.name}",
                torch=f"{side}_layer.core.{v.torch_name}",
                place=f"{side}_layer/{v.place}",
            )
            for side, layer in zip(("forward", "backward"), self._pair, strict=True)
            for v in layer.variables(*shapes)
        )

    def limits(self, backend: str) -> Iterable[str]:
        """Return the limits of the wrapped layer."""
        return self.layer.limits(backend)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        forward, backward = self._pair
        core = nn.ModuleDict(
            {
                "forward_layer": build_layer_module(forward, shapes),
                "backward_layer": build_layer_module(backward, shapes),
            }
        )
        mode = self.merge_mode

        def call(module: Any, x: Any) -> Any:
            one, two = module.core["forward_layer"](x), module.core["backward_layer"](x)
            if forward.return_sequences:
                two = two.flip(1)
            if mode is None:
                return one, two
            if mode == "concat":
                import torch

                return torch.cat((one, two), -1)
            return one * two if mode == "mul" else (one + two) * (0.5 if mode == "ave" else 1)

        return TorchParts(call, core)


class TimeDistributed(Layer):
    """Applies a layer to each step separately.

    Parameters
    ----------
    layer
        The layer to apply.
    """

    keras: ClassVar[str] = "TimeDistributed"
    layer: Layer = row(Nested(Layer))

    def _get_step_shape(self, shape: Shape) -> Shape:
        if len(shape) < 3:
            raise Misfit(f"takes at least samples, steps and features, not {shape}")
        return (None, *shape[2:])

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        (inner, *more) = self.layer.shapes(self._get_step_shape(shape))
        if more:
            raise Misfit("holds a layer with several outputs")
        return ((shape[0], shape[1], *inner[1:]),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return tuple(
            dataclasses.replace(
                v, torch=f"core.{v.torch_name}", place=f"layer/{v.place or f'vars/{i}'}"
            )
            for i, v in enumerate(self.layer.variables(self._get_step_shape(shapes[0])))
        )

    def limits(self, backend: str) -> Iterable[str]:
        """Return the limits of the wrapped layer."""
        return self.layer.limits(backend)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        core = build_layer_module(self.layer, (self._get_step_shape(shapes[0]),))
        return TorchParts(
            lambda module, x: module.core(x.flatten(0, 1)).unflatten(0, x.shape[:2]), core
        )
