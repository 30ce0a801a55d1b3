"""Which operations of a model each step of a runtime computes.

A runtime fuses operations, folds some and adds others, such as conversions of a layout.  Many
runtimes name the origin of their steps: an operation, or a tensor whose values the step computes.
Steps of the others go with the operations of the same kind, in order.  The other operations lie
between these, and belong to the step in which their result is used or from which their inputs come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from nnpipe.analysis.stored_values import find_constants
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.operation_times import KernelTime
from nnpipe.core.primitives import PlainPrimitive

_ELEMENTWISE = ("elementwise", "normalisation")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CONVERTING = frozenset(
    "reorder convert cast transpose permute copy quantize dequantize requantize layout".split()
)
_BESIDE = frozenset(
    "input output linear dynamic fake like to dim order per tensor channel transform fused".split()
)
_VIEW = re.compile(r"reshape|squeeze|flatten|view", re.IGNORECASE)
_PRODUCTS = {"matrix product", "convolution", "pointwise convolution", "depthwise convolution"}
_MOVING = {"movement", "quantisation", "view", "gather"}


def match_kernels_to_operations(
    graph: Graph, kernels: Sequence[KernelTime]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the operations that each step computes, by the step's name, in the order
    of the graph.

    An operation that several steps compute, each a part, is named with each.  Steps that the
    runtime added itself have none.

    Parameters
    ----------
    graph
        The model's graph, whose operations are in an order in which they can be computed.
    kernels
        The steps.
    """
    folded = find_constants(graph).folded
    operations = [each for each in graph.operations if each.name not in folded]
    owners = _match_by_name(operations, kernels)
    _match_by_kind(operations, kernels, owners)
    _add_unnamed_operations(operations, graph, {each.name: each.after for each in kernels}, owners)
    found: dict[str, list[str]] = {each.name: [] for each in kernels}
    for operation in operations:
        for kernel in owners.get(operation.name, ()):
            found[kernel].append(operation.name)
    return {kernel: tuple(names) for kernel, names in found.items()}


def _match_by_name(
    operations: Sequence[Operation], kernels: Sequence[KernelTime]
) -> dict[str, list[str]]:
    """Return the steps that name each operation, or a tensor that it computes."""
    by_name = {operation.name: operation.name for operation in operations}
    # A tensor says more about who computes it than a name, which a fused step may have from any of
    # its operations.
    by_tensor = {tensor: operation.name for operation in operations for tensor in operation.outputs}
    owners: dict[str, list[str]] = {}
    for kernel in kernels:
        for source in dict.fromkeys(kernel.sources):
            operation = by_tensor.get(source) or by_name.get(source)
            if operation is not None and kernel.name not in owners.setdefault(operation, []):
                owners[operation].append(kernel.name)
    converts = {
        kernel.name for kernel in kernels if is_conversion(kernel.kind) or _VIEW.search(kernel.kind)
    }
    # A conversion of a result is named like what computes it.
    moving = {
        each.name for each in operations if {every.kind for every in each.primitives} <= _MOVING
    }
    computing = {
        name: [each for each in found if each not in converts] for name, found in owners.items()
    }
    return {
        name: computing[name] or found[:1]
        for name, found in owners.items()
        if computing[name] or name in moving
    }


def _match_by_kind(
    operations: Sequence[Operation], kernels: Sequence[KernelTime], owners: dict[str, list[str]]
) -> None:
    """Add the steps that name no operation, but say what they compute: each goes with one such
    operation, in order.
    """
    placed = {name for found in owners.values() for name in found}
    waiting = [kernel for kernel in kernels if kernel.computes and kernel.name not in placed]
    if not waiting:
        return
    known = {kernel.computes for kernel in waiting}
    open_ones = [
        (each.name, _find_kind_word(each, known)) for each in operations if each.name not in owners
    ]
    open_ones = [(name, word) for name, word in open_ones if word]
    theirs = [kernel.computes for kernel in waiting]
    for word in known:
        ours = [name for name, each in open_ones if each == word]
        if len(ours) == theirs.count(word):
            for name, kernel in zip(
                ours, (each for each in waiting if each.computes == word), strict=True
            ):
                owners[name] = [kernel.name]
    waiting = [
        kernel for kernel in waiting if not any(kernel.name in found for found in owners.values())
    ]
    open_ones = [(name, word) for name, word in open_ones if name not in owners]
    matcher = SequenceMatcher(
        None, [word for _, word in open_ones], [each.computes for each in waiting], False
    )
    for block in matcher.get_matching_blocks():
        for ahead in range(block.size):
            owners[open_ones[block.a + ahead][0]] = [waiting[block.b + ahead].name]


def _find_kind_word(operation: Operation, known: set[str]) -> str:
    """Return what an operation computes, in the words of steps; empty if no step says the same."""
    for each in operation.primitives:
        kind = "convolution" if each.kind.endswith("convolution") else each.kind
        product = "product" if kind in ("convolution", "matrix product") else ""
        function = each.function.lower() if isinstance(each, PlainPrimitive) else ""
        for word in (function, each.kind, kind, product):
            if word in known:
                return word
    return ""


def is_conversion(kind: str) -> bool:
    """Return whether an operator only changes the layout or the type of values.

    Examples
    --------
    >>> is_conversion("ReorderInput"), is_conversion("QuantizeLinear"), is_conversion("Convert (NC, F32, QS8)")
    (True, True, True)
    >>> is_conversion("ConvTranspose"), is_conversion("DynamicQuantizeMatMul")
    (False, False)
    """
    words = {word.lower() for word in _WORD.findall(kind.rpartition("::")[2].partition(" (")[0])}
    return not words.isdisjoint(_CONVERTING) and words <= _CONVERTING | _BESIDE


def _add_unnamed_operations(
    operations: Sequence[Operation],
    graph: Graph,
    after: Mapping[str, tuple[str, ...]],
    owners: dict[str, list[str]],
) -> None:
    """Add the operations that no step names, those that are computed first before others."""
    maker = {tensor: operation.name for operation in operations for tensor in operation.outputs}
    told = any(after.values())  # not every runtime tells which steps read which
    after = _resolve_conversions(after, owners)
    behind, activated = _find_next_steps(operations, graph, owners)
    products = {
        each.name for each in operations for every in each.primitives if every.kind in _PRODUCTS
    }
    for operation in operations:
        if operation.name in owners:
            continue
        makers = dict.fromkeys(maker[tensor] for tensor in operation.inputs if tensor in maker)
        ahead = list(dict.fromkeys(kernel for name in makers for kernel in owners.get(name, ())))
        candidates = behind[operation.name]
        # What only one step needs is computed in it, and what several need once, before them.  But
        # what follows an operation elementwise is rarely computed in the next convolution.
        late = len(candidates) == 1 and (
            not _is_elementwise(operation) or activated[operation.name]
        )
        late = late and not (_is_bias(operation, graph, maker) and set(makers) <= products)
        ordered = [*candidates, *ahead] if late else [*ahead, *candidates]
        chosen = next(
            (each for each in ordered if not told or _reads(after[each], ahead, each)), None
        )
        if chosen is not None or ordered:
            owners[operation.name] = [chosen or ordered[0]]


def _resolve_conversions(
    after: Mapping[str, tuple[str, ...]], owners: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    """Return what each step reads, with what the steps that compute no operation, such as
    conversions, read in turn.
    """
    placed = {kernel for found in owners.values() for kernel in found}
    found: dict[str, tuple[str, ...]] = {}
    for kernel, read in after.items():  # in the order in which they ran
        through = (far for each in read if each not in placed for far in found.get(each, ()))
        found[kernel] = tuple(dict.fromkeys((*read, *through)))
    return found


def _find_next_steps(
    operations: Sequence[Operation], graph: Graph, owners: Mapping[str, list[str]]
) -> tuple[dict[str, list[str]], dict[str, bool]]:
    """Return the nearest steps behind each operation, and whether elementwise operations alone
    lead to them.
    """
    users: dict[str, list[Operation]] = {}
    for operation in operations:
        for tensor in operation.inputs:
            users.setdefault(tensor, []).append(operation)
    found: dict[str, list[str]] = {}
    plain: dict[str, bool] = {}
    for operation in reversed(operations):
        next_ones = [each for tensor in operation.outputs for each in users.get(tensor, ())]
        steps = (
            kernel
            for each in next_ones
            for kernel in owners.get(each.name, found.get(each.name, ()))
        )
        # then it cannot be a part of what follows
        leaves = not set(operation.outputs).isdisjoint(graph.outputs)
        found[operation.name] = [] if leaves else list(dict.fromkeys(steps))
        plain[operation.name] = all(
            _is_elementwise(each) and (each.name in owners or plain.get(each.name, False))
            for each in next_ones
        )
    return found, plain


def _is_elementwise(operation: Operation) -> bool:
    return bool(operation.primitives) and all(
        each.kind in _ELEMENTWISE for each in operation.primitives
    )


def _is_bias(operation: Operation, graph: Graph, maker: Mapping[str, str]) -> bool:
    """Return whether an operation adds a constant to one result."""
    adds = any(
        isinstance(each, PlainPrimitive) and each.function == "add" for each in operation.primitives
    )
    fixed = [
        tensor for tensor in operation.inputs if tensor not in maker and tensor not in graph.inputs
    ]
    return adds and len(fixed) == 1


def _reads(inputs: Sequence[str], ahead: Sequence[str], kernel: str) -> bool:
    """Return whether a step reads the results of all these."""
    return all(each in inputs for each in ahead if each != kernel)
