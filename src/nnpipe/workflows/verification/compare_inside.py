"""Comparing two models weight by weight and operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnpipe.analysis.weight_changes import (
    WeightComparison,
    find_complete_counterparts,
    find_counterparts,
)
from nnpipe.analysis.weight_comparison import compare_weights
from nnpipe.analysis.weights import Weights
from nnpipe.core.artifact import Claim, select_weight_changes
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import Graph
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch
from nnpipe.workflows.verification.binding import Binding
from nnpipe.workflows.verification.first_difference import Divergence, find_divergence, match_values
from nnpipe.workflows.verification.model_weights import convert_to_source_types, extract_weights
from nnpipe.workflows.verification.undoing import (
    Undoing,
    ignore_unused_differences,
    iter_adoptable_weights,
    sort_by_weights,
)


def compare_inside(
    source: LiveModel,
    other: LiveModel,
    binding: Binding,
    samples: Sequence[Batch],
    claims: tuple[Claim, ...],
) -> tuple[Divergence | str, WeightComparison | str]:
    """Return the comparison by operations and by weights, or the reasons why there is none.

    Parameters
    ----------
    source, other
        The two models.  If the conversion claims changed weights, the source keeps the other
        model's afterwards.
    binding
        The correspondence of their inputs and outputs.
    samples
        Inputs of the source, those with the largest errors first.
    claims
        The claims of the conversion.
    """
    weighed: tuple[Weights, Weights, WeightComparison] | None = None
    weights: WeightComparison | str
    adopted = False
    try:
        here, there = extract_weights(source), extract_weights(other)
        weights = compare_weights(here, there, claims)
        weighed = here, there, weights
        if select_weight_changes(claims) and (changed := find_complete_counterparts(here, there)):
            source.set_weights(convert_to_source_types(source, changed))
            adopted = True
    except NNPipeError as error:
        weights = str(error)
    try:
        absent = (
            set()
            if weighed is None
            else _find_folded(source.get_inference_graph(), weighed[0], weighed[2])
        )
        values = match_values(source, other, binding, samples, claims, absent)
        where = replace(find_divergence(values, claims), adopted=adopted)
        undoing = Undoing(values, claims)
        if weighed is not None and weighed[2].wrong and not select_weight_changes(claims):
            here, theirs = weighed[0], find_counterparts(*weighed[:2])
            weights = ignore_unused_differences(
                weighed[2], values, here, theirs, undoing.has_same_outputs()
            )
            adopted_names = [
                name for _, name in iter_adoptable_weights(weights, values, here, theirs)
            ]
            undoing = replace(undoing, wrong={name: theirs[name] for name in adopted_names})
        if isinstance(weights, WeightComparison) and weights.wrong:
            where = sort_by_weights(where, values.graph, values.other_graph, weights)
        where = replace(where, suspects=undoing.undo_suspects(where.suspects))
    except NNPipeError as error:
        return str(error), weights
    return where, weights


def _find_folded(graph: Graph, here: Weights, weights: WeightComparison) -> set[str]:
    """Return the results of layer normalisations of which all that follows has the scale and
    shift in its weights.
    """
    operations = {weight.name: weight.operation for weight in here.tensors}
    took: dict[str, set[str]] = {}
    for change in weights.tensors:
        took.setdefault(change.folded, set()).add(operations.get(change.name, ""))
    users: dict[str, set[str]] = {}
    for operation in graph.operations:
        for name in operation.inputs:
            users.setdefault(name, set()).add(operation.name)
    affine = {affine.name for affine in here.affine.values()}
    return {
        tensor
        for operation in graph.operations
        if operation.name in affine and operation.name in took
        for tensor in operation.outputs
        if tensor not in graph.outputs and users.get(tensor, {""}) <= took[operation.name]
    }
