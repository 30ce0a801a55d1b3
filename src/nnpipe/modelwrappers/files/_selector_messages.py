"""Messages about what a selector did not find in a graph."""

from __future__ import annotations

from nnpipe.core.graph import Graph, Selector
from nnpipe.core.naming import nearest


def shown(selector: Selector, graph: Graph) -> str:
    """Describe a selector that chose nothing, with the name that was probably meant."""
    operations = graph.operations
    if selector.tensor is not None:
        known = {name for operation in operations for name in operation.outputs}
        return f"tensor={selector.tensor!r}{nearest(selector.tensor, known)}"
    if selector.layer is not None:
        return f"layer={selector.layer!r}{nearest(selector.layer, {op.layer for op in operations})}"
    return f"operation={selector.operation!r}{nearest(selector.operation or '', {op.kind for op in operations})}"
