"""The rows of an explanation as plain numbers, for CSV and JSON files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nnpipe.analysis.layer_times import LayerTimes
from nnpipe.analysis.operation_costs import GraphCost, OperationCost
from nnpipe.core.tensors import TensorSpec

OPERATION_COLUMNS = (
    "name", "kind", "layer", "primitive", "details", "inputs", "outputs", "macs", "other_operations", "bytes_read",
    "bytes_written", "parameters", "live_bytes", "intensity",
)  # fmt: skip


def operation_figures(each: OperationCost) -> dict[str, Any]:
    """Return the figures of an operation as JSON can hold them; ``None`` for what is not known."""
    known = each.arithmetic
    return {
        "name": each.name,
        "kind": each.kind,
        "layer": each.layer,
        "primitive": each.primitive,
        "details": each.details,
        "primitives": [primitive.to_json() for primitive in each.computes],
        "inputs": [spec.to_json() for spec in each.inputs],
        "outputs": [spec.to_json() for spec in each.outputs],
        "macs": None if known is None else known.macs,
        "other_operations": None if known is None else known.others,
        "bytes_read": each.bytes_read,
        "bytes_written": each.bytes_written,
        "parameters": each.parameters,
        "live_bytes": each.live_bytes,
        "intensity": each.intensity,
    }


def operation_rows(cost: GraphCost) -> list[dict[str, Any]]:
    """Return a row of plain cells for each operation, with :data:`OPERATION_COLUMNS`."""
    rows = []
    for each in cost.operations:
        row = {**operation_figures(each), "inputs": _tensors(each.inputs), "outputs": _tensors(each.outputs)}
        rows.append({name: row[name] for name in OPERATION_COLUMNS})
    return rows


def layer_rows(times: LayerTimes) -> list[dict[str, Any]]:
    """Return a row of plain cells for each step of a runtime, and one for what belongs to none."""
    return [{**each.to_json(), "operations": " ".join(each.operations)} for each in times.rows]


def _tensors(specs: Iterable[TensorSpec]) -> str:
    return " ".join(f"{'x'.join(map(str, spec.shape)) or '1'}:{spec.dtype}" for spec in specs)
