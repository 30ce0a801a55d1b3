"""ONNX operators that frameworks compute wrongly without a warning, and their detection in files.

Each entry was found with ONNX's published operator tests (``nnpipe
conformance``) in the version that it names.  Entries are limited to faults that
can be detected in a file.  Faults that depend on the values of inputs are left
to ``nnpipe verify``; ``docs/onnx.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import NotSupported
from nnpipe.formats.onnx_network import ONNXNode, read_nodes


def _is_any_node(node: ONNXNode) -> bool:
    return True


@dataclass(frozen=True)
class KnownFault:
    """A form of an operator that a framework computes wrongly.

    Parameters
    ----------
    operator
        The operator's type.
    how
        The fault, as the text after "computes X wrongly:".
    when
        Returns whether a node has this form.
    """

    operator: str
    how: str
    when: Callable[[ONNXNode], bool] = _is_any_node


def check_known_faults(path: Path, framework: str, table: Sequence[KnownFault]) -> None:
    """Check that a file has no operator that a framework computes wrongly.

    Raises
    ------
    NotSupported
        If it has one; the message names the file, the operator, the node and the fault.
    ArtifactError
        If the file is damaged.
    """
    if faults := find_known_faults(path, framework, table):
        raise NotSupported(f"{path}: {faults[0]}")


def find_known_faults(path: Path, framework: str, table: Sequence[KnownFault]) -> tuple[str, ...]:
    """Return a line for each node of a file that a framework computes wrongly.

    Raises
    ------
    ArtifactError
        If the file is damaged.
    """
    return tuple(
        f"{framework} computes {node.kind} {node.title!r} wrongly: {entry.how}"
        for node in read_nodes(path)
        for entry in table
        if entry.operator == node.kind and entry.when(node)
    )


def _has_peepholes(node: ONNXNode) -> bool:
    return bool(node.get_input(7))


def _has_antialias(node: ONNXNode) -> bool:
    return bool(node.attributes.get("antialias"))


def _has_ratio_policy(node: ONNXNode) -> bool:
    return node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" and bool(
        node.get_input(3)
    )


def _is_weighted_mean(node: ONNXNode) -> bool:
    return node.attributes.get("reduction", "mean") == "mean" and bool(node.get_input(2))


def _is_nearest(node: ONNXNode) -> bool:
    return bool(node.attributes.get("mode") == "nearest")


def _has_attributes(node: ONNXNode) -> bool:
    return bool(node.attributes)


OPENVINO = (
    KnownFault("Resize", "antialiasing is left out", _has_antialias),
    KnownFault("Resize", "keep_aspect_ratio_policy is left out", _has_ratio_policy),
    KnownFault("LSTM", "peepholes are left out", _has_peepholes),
)
"""OpenVINO 2026.4, on the CPU."""

IREE = (
    KnownFault(
        "Det", "rows are not exchanged, and where that is needed the result is not a number"
    ),
    KnownFault("SoftmaxCrossEntropyLoss", "the mean by weights is infinite", _is_weighted_mean),
    KnownFault("GridSample", "some of the nearest neighbours are others", _is_nearest),
    KnownFault("LSTM", "peepholes are left out", _has_peepholes),
    KnownFault("QLinearMatMul", "sums overflow; use MatMulInteger or QDQ"),
)
"""IREE 3.13."""

TVM = (
    KnownFault("NonMaxSuppression", "other boxes are chosen"),
    KnownFault("IsInf", "its attributes are left out", _has_attributes),
)
"""Apache TVM 0.27; the Relax module is checked further after its import."""
