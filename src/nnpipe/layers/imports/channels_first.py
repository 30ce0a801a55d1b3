"""Translation of operations with channels first, as in ONNX and PyTorch, into layers with channels
last.

A value of the source is a :class:`View` of a tensor of the graph: the same
numbers, perhaps with the axes in another order.  Operations that only reorder
axes change the view and add no layer; a ``Permute`` is added only where a layer
depends on the order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nnpipe.layers.graph.shape_inference import find_argument_problems
from nnpipe.layers.problems import CODES, Misfit
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.reshaping import Flatten, Permute, Rescaling, Reshape
from nnpipe.layers.vocabulary.resizing import (
    Crop1d,
    Crop2d,
    Crop3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)

Pads = tuple[tuple[int, int], ...]

_PADS = {1: (ZeroPad1d, Crop1d), 2: (ZeroPad2d, Crop2d), 3: (ZeroPad3d, Crop3d)}


class Unsupported(Exception):
    """Raised if an operation, as it is used, has no equivalent layers; ``argument`` names the
    cause, if it is one.
    """

    def __init__(self, message: str, argument: str = "", code: str = "unknown-argument") -> None:
        super().__init__(message)
        assert code in CODES
        self.argument, self.code = argument, code


@dataclass(frozen=True, eq=False)
class View:
    """A value of the source.

    Attributes
    ----------
    tensor
        The tensor of the graph that holds it.
    own
        The tensor's shape, batch axis first; ``None`` if it is not known.
    order
        For each axis of the value, the corresponding axis of the tensor.
    dtype
        Element type.
    pads
        Padding that is still to be added before and after each axis of the value, or ``None``.
    fill
        Number to pad with.
    flat
        Whether all axes but the batch axis are still to be flattened, in the value's own order.
    """

    tensor: Any
    own: Shape | None
    order: tuple[int, ...] = ()
    dtype: str = "float32"
    pads: Pads | None = None
    fill: float = 0.0
    flat: bool = False

    @property
    def axes(self) -> Shape:
        """The value's shape before the pending padding and flattening."""
        if self.own is None:
            raise Unsupported(
                "follows what is not known, so its shape cannot be told", code="shape"
            )
        return tuple(self.own[axis] for axis in self.order)

    @property
    def samples(self) -> int:
        """The value's batch axis."""
        return self.order.index(0)

    @property
    def shape(self) -> Shape:
        """The value's shape."""
        shape = self.axes
        if self.pads is not None:
            shape = tuple(
                None if e is None else e + sum(p) for e, p in zip(shape, self.pads, strict=True)
            )
        if self.flat:
            return (shape[0], None if None in shape[1:] else math.prod(e or 0 for e in shape[1:]))
        return shape


def list_axes(view: View) -> tuple[int, ...]:
    """Return the value's axes in their own order."""
    return tuple(range(len(view.order)))


@dataclass
class Builder:
    """Creates layers with unique names, and keeps their weights.

    ``room`` is the number of values that may still be copied from constants of the
    source: a small file may use one constant very often.
    """

    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[Layer] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    room: int = 1 << 24
    _numbers: Counter[str] = field(default_factory=Counter)
    _before: dict[int, tuple[Any, Any, Shape]] = field(default_factory=dict)
    _arranged: dict[tuple[int, tuple[int, ...]], View] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        """Return a unique name that resembles the wanted one."""
        plain = re.sub(r"[^\w-]+", "_", wanted).strip("_") or "layer"
        name = plain
        while name in self.taken:
            self._numbers[plain] += 1
            name = f"{plain}_{self._numbers[plain]}"
        self.taken.add(name)
        return name

    def input(self, name: str, dtype: str, shape: Shape) -> View:
        """Add an input with a free batch size."""
        if not shape:
            raise Unsupported("is an input without an axis of samples", code="no-input-shape")
        layer = Input(shape[1:], name=self.name(name), dtype=dtype)
        self.inputs.append(layer)
        self._check(layer)
        view = View(layer, (None, *shape[1:]), tuple(range(len(shape))), dtype)
        return (
            self.convert_to_float32(view, f"{name}_real")
            if dtype in ("float16", "float64", "bfloat16")
            else view
        )

    def convert_to_float32(self, view: View, name: str) -> View:
        """Return the same numbers in single precision, in which layers compute."""
        layer = Rescaling(view.tensor, 1.0, name=self.name(name))
        return replace(view, tensor=layer, own=self.add(layer, self.own(view)), dtype="float32")

    def add(
        self, layer: Layer, *given: Shape, weights: Mapping[str, np.ndarray] | None = None
    ) -> Shape:
        """Add a layer that was applied to tensors of these shapes, and return the shape of its
        output.
        """
        self._check(layer)
        try:
            (found, *_) = layer.shapes(*given)
            expected = {variable.name: variable.shape for variable in layer.variables(*given)}
        except Misfit as misfit:
            raise Unsupported(f"{type(layer).__name__} {misfit}", code=misfit.code) from None
        self.reserve_values(sum(value.size for value in (weights or {}).values()))
        held = {
            name: np.ascontiguousarray(value, np.float32) for name, value in (weights or {}).items()
        }
        shapes = {name: value.shape for name, value in held.items()}
        if shapes != expected:
            raise Unsupported(f"has weights of the shapes {shapes}, not {expected}", code="weights")
        self.weights |= {f"{layer.name}/{name}": value for name, value in held.items()}
        return found

    def reserve_values(self, values: int) -> None:
        """Count values that are copied from constants; raise ``Unsupported`` if they are too
        many.
        """
        if values > self.room:
            raise Unsupported(
                "takes constants of many more values than the whole source holds", code="size"
            )
        self.room -= values

    def _check(self, layer: Layer) -> None:
        faults = [str(problem) for problem in find_argument_problems(layer, type(layer).__name__)]
        if faults:
            raise Unsupported("; ".join(faults), code="argument")

    def put(
        self, view: View, layer: Layer, weights: Mapping[str, np.ndarray] | None = None
    ) -> View:
        """Add a layer that was applied to a view's tensor and keeps the order of axes."""
        self.check_real(view)
        return replace(view, tensor=layer, own=self.add(layer, self.own(view), weights=weights))

    def check_real(self, view: View) -> None:
        """Raise ``Unsupported`` for integers, with which layers compute differently."""
        if view.dtype != "float32":
            raise Unsupported(f"computes with {view.dtype}, which layers do not")

    def own(self, view: View) -> Shape:
        """Return the shape of a view's tensor; raise ``Unsupported`` if it is not known."""
        view.axes  # noqa: B018 - raises if it is not known
        assert view.own is not None
        return view.own

    def reshape(self, view: View, rest: tuple[int, ...], name: str) -> tuple[Any, Shape]:
        """Return a tensor of another shape; consecutive reshapes become one."""
        _, tensor, own = self._before.get(id(view.tensor), (None, view.tensor, self.own(view)))
        if own[1:] == rest:
            return tensor, own
        layer = Reshape(tensor, rest, name=self.name(name))
        # keeps the layer alive, so that its id stays unique
        self._before[id(layer)] = layer, tensor, own
        return layer, self.add(layer, own)

    # -- order ----------------------------------------------------------------------------------

    def permute_axes(self, view: View, order: Sequence[int]) -> View:
        """Return a view of the same value whose tensor has the value's axes in the given order."""
        view = self.apply_pending(view)
        wanted = tuple(view.order[axis] for axis in order)
        if wanted == tuple(range(len(wanted))):
            return view
        if wanted[0] != 0:
            raise Unsupported("puts another axis before that of samples")
        key = (id(view.tensor), wanted)
        if key not in self._arranged:
            layer = Permute(view.tensor, wanted[1:], name=self.name("permute"))
            found = self.add(layer, self.own(view))
            # The tensor is kept alive, so that its id stays unique.
            self._arranged[key] = replace(view, tensor=layer, own=found)
        made = self._arranged[key]
        return replace(
            made, order=tuple(order.index(axis) for axis in range(len(order))), dtype=view.dtype
        )

    def materialize(self, view: View) -> View:
        """Return a view whose tensor equals the value, with nothing pending."""
        view = self.apply_pending(view)
        return self.permute_axes(view, list_axes(view))

    def channels_last(self, view: View) -> View:
        """Return a view whose tensor has the value's second axis at the end."""
        count = len(view.order)
        return self.permute_axes(view, (0, *range(2, count), 1))

    # -- pending padding and flattening ---------------------------------------------------------

    def apply_pending(self, view: View) -> View:
        """Return a view after the pending padding, cropping and flattening."""
        if view.pads is not None:
            view = self._apply_padding(view)
        if view.flat:
            whole = replace(view, flat=False)
            # If only axes of length 1 have moved, the values keep their order.
            places = [
                view.order[axis] for axis, extent in enumerate(view.axes) if axis and extent != 1
            ]
            whole = (
                whole
                if places == sorted(places) and view.order[0] == 0
                else self.materialize(whole)
            )
            layer = Flatten(whole.tensor, name=self.name("flatten"))
            view = View(layer, self.add(layer, self.own(whole)), (0, 1), view.dtype)
        return view

    def _apply_padding(self, view: View) -> View:
        pads, fill, flat = view.pads, view.fill, view.flat
        assert pads is not None
        view = replace(view, pads=None, fill=0.0, flat=False)
        if not any(map(any, pads)):
            return replace(view, flat=flat)
        rank, samples = len(pads) - 2, view.samples
        if rank not in _PADS or any(pads[samples]):
            raise Unsupported("adds to axes that no layer adds to, or cuts them", "pads")
        if fill and any(side > 0 for pair in pads for side in pair):
            raise Unsupported(f"adds {fill:g} at the edges, where layers add zeros", "value")
        others = [axis for axis in range(len(pads)) if axis != samples]
        still = [axis for axis in others if not any(pads[axis])]
        if not still:
            raise Unsupported("adds to every axis", "pads")
        # One axis must stay unpadded; the last one of the tensor if possible.
        channel = max(still, key=lambda axis: view.order[axis])
        rest = sorted(
            (axis for axis in others if axis != channel), key=lambda axis: view.order[axis]
        )
        view = self.permute_axes(view, (samples, *rest, channel))
        more, less = _PADS[rank]
        added = tuple(
            (max(before, 0), max(after, 0)) for before, after in (pads[axis] for axis in rest)
        )
        cut = tuple(
            (max(-before, 0), max(-after, 0)) for before, after in (pads[axis] for axis in rest)
        )
        if any(map(any, added)):
            view = self.put(view, more(view.tensor, added, name=self.name("pad")))
        if any(map(any, cut)):
            view = self.put(view, less(view.tensor, cut, name=self.name("crop")))
        return replace(view, flat=flat)

    # -- unknown operations ---------------------------------------------------------------------

    def add_unknown(
        self, name: str, raw: Mapping[str, Any], given: Sequence[View], outputs: int
    ) -> list[View]:
        """Add an operation as an ``Unknown`` layer."""
        layer = Unknown(tuple(view.tensor for view in given), Raw.from_value(raw), name=name)
        return [View(layer[number] if number else layer, None) for number in range(outputs)]
