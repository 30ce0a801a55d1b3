"""Operations of ONNX graphs, as quantisers that leave tensors in floats see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from nnpipe.compilers._float_tensors import GraphStep

# Operations whose rounded result is the result for the rounded input.
_PASSING = frozenset(
    (
        "Relu", "Clip", "MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze",
        "Identity", "Dropout", "DepthToSpace", "SpaceToDepth", "Expand", "Tile",
    )
)  # fmt: skip


def steps_of(graph: Any) -> list[GraphStep]:
    """Return the nodes of an ``onnx.GraphProto``, without those of graphs inside."""
    return [
        GraphStep(
            node.name, tuple(filter(None, node.input)), tuple(filter(None, node.output)), node.op_type in _PASSING
        )
        for node in graph.node
    ]


def surviving(name: str, before: Sequence[GraphStep], there: Collection[str]) -> set[str]:
    """Return the tensors that stand for a source's tensor after fusion: itself, or the next ones that are left.

    A convolution and the normalisation after it become one operation, which computes the normalisation's result.

    Parameters
    ----------
    name
        A tensor of the source.
    before
        The operations of the source.
    there
        The tensors after fusion.
    """
    found: set[str] = set()
    waiting, seen = [name], {name}
    while waiting:
        tensor = waiting.pop()
        if tensor in there:
            found.add(tensor)
            continue
        fresh = {output for step in before if tensor in step.inputs for output in step.outputs} - seen
        seen |= fresh
        waiting += fresh
    return found
