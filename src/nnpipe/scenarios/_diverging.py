"""Finding the first tensor at which two models part, where both can show what they compute on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import Tolerances, compare
from nnpipe.core.adapt import adapt
from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Graph, Selector
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch
from nnpipe.scenarios._verifying import Binding, real

# ONNX Runtime's quantiser folds activations into the rounding that follows; what it leaves under the old name is what
# was there before, and the value that goes on bears this in addition.
_AFTER = "_DequantizeLinear_Output"


@dataclass(frozen=True)
class Place:
    """A tensor, what computes it in the source, and how far the other's is from it."""

    tensor: str
    operation: str
    kind: str
    max_relative: float
    mean_relative: float


@dataclass(frozen=True)
class Divergence:
    """Where two models part on one sample, in the order in which the source computes.

    Parameters
    ----------
    compared
        How many tensors bear the same name and have the same shape on both sides.
    first
        The first of them that is not the same; ``None`` if all are.
    first_far
        The first of them that is not even close.
    """

    compared: int
    first: Place | None
    first_far: Place | None

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON can hold it; infinite errors as the text ``"infinite"``."""
        found = asdict(self)
        for place in (found["first"], found["first_far"]):
            for key in ("max_relative", "mean_relative") if place else ():
                place[key] = place[key] if np.isfinite(place[key]) else "infinite"
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Divergence:
        """Read what :meth:`to_json` gave."""
        first, far = (_place(data[key]) for key in ("first", "first_far"))
        return cls(data["compared"], first, far)

    def __str__(self) -> str:
        if self.first is None:
            return f"all {self.compared} intermediate tensors that both sides have are the same"
        text = f"first tensor that differs: {_told(self.first)}"
        if self.first_far is not None and self.first_far.tensor != self.first.tensor:
            text += f"; first that is far off: {_told(self.first_far)}"
        return f"{text}; {self.compared} tensors compared"


def _place(data: Mapping[str, Any] | None) -> Place | None:
    if data is None:
        return None
    errors = {key: np.inf if data[key] == "infinite" else data[key] for key in ("max_relative", "mean_relative")}
    return Place(**{**data, **errors})


def _told(place: Place) -> str:
    return f"{place.tensor!r} ({place.kind}), relative error up to {place.max_relative:.3g}"


def divergence(
    source: ModelWrapper, other: ModelWrapper, binding: Binding, sample: Batch, tolerances: Tolerances
) -> Divergence:
    """Compare all intermediate values of one sample that bear the same name in both models.

    Raises
    ------
    NotSupported
        If no two of them do, or one side cannot show any.
    """
    everything = Selector(tensor="*")
    given = adapt(binding.there(sample), binding.towards(source.io.inputs), other.io.inputs)
    ours, theirs = source.get_intermediates(everything, sample), other.get_intermediates(everything, given)
    graph, other_graph = source.get_inference_graph(), other.get_inference_graph()
    compared, first, far = 0, None, None
    for operation in graph.operations:
        for tensor in operation.outputs:
            name = binding.names.get(tensor, tensor)
            name = name + _AFTER if name + _AFTER in theirs else name
            if tensor not in ours or name not in theirs:
                continue
            mine, its = _real(graph, tensor, ours[tensor]), _real(other_graph, name, theirs[name])
            if mine.shape != its.shape or mine.dtype.kind not in "biuf" or its.dtype.kind not in "biuf":
                continue
            compared += 1
            found = compare([{tensor: mine}], [{tensor: its}]).tensors[0]
            place = Place(tensor, operation.name, operation.kind, found.max_relative, found.mean_relative)
            if first is None and found.max_relative > tolerances.same_tolerance:
                first = place
            if far is None and found.mean_relative > tolerances.close_tolerance:
                far = place
    if not compared:
        raise NotSupported("no intermediate tensor bears the same name, with the same shape, on both sides")
    return Divergence(compared, first, far)


def _real(graph: Graph, tensor: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    spec = graph.tensors.get(tensor)
    return array if spec is None else real(array, spec)
