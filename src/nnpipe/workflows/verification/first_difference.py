"""Comparing two models operation by operation, if both can return intermediate values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import Array, round_to_8_bits
from nnpipe.analysis.suspect_operations import (
    Level,
    Suspect,
    find_suspects,
    find_unknown_predecessors,
    get_sure_threshold,
    rank_coarsest,
)
from nnpipe.analysis.tensor_pairing import ComputedTensor, Pair, TensorPairing, has_distinct_numbers
from nnpipe.analysis.weight_changes import WeightComparison
from nnpipe.core.artifact import WEIGHTS_ONLY, Claim, get_lowest_precision
from nnpipe.core.errors import NotSupported
from nnpipe.core.foreign_text import join_lines
from nnpipe.core.graph import Graph, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.quantization import adapt, quantize_linear
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.workflows.verification.binding import Binding, find_varying_tensors, sort_operations
from nnpipe.workflows.verification.compare_outputs import dequantize_values


@dataclass(frozen=True)
class Rerun:
    """Runs a model repeatedly on the same batches, with given values in place of some tensors."""

    source: LiveModel
    graph: Graph
    batches: Sequence[Batch]

    def __call__(
        self, given: Mapping[str, Array], tensor: str = "*", resting: bool = False
    ) -> dict[str, Any]:
        """Return the requested tensors as floating point; if ``resting``, all inputs are 0."""
        lengths = [len(next(iter(batch.values()))) for batch in self.batches]
        stored = {
            name: _encode_values(array, self.graph.tensors.get(name))
            for name, array in given.items()
        }
        parts = {name: _split_values(array, lengths) for name, array in stored.items()}
        found = []
        for n, batch in enumerate(self.batches):
            taken = (
                {name: np.zeros_like(array) for name, array in batch.items()} if resting else batch
            )
            own = {name: part[n] for name, part in parts.items()}
            found.append(self.source.get_intermediates(Selector(tensor=tensor), taken, own))
        return join_values(found, self.graph)


def build_batches(models: Sequence[LiveModel], samples: Sequence[Batch]) -> list[Batch]:
    """Return samples as one batch if all models take any number, else one batch each."""
    if all(spec.shape[:1] == (None,) for model in models for spec in model.io.inputs):
        return [{name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}]
    return list(samples)


def join_values(parts: Sequence[Mapping[str, Any]], graph: Graph) -> dict[str, Any]:
    """Join values of several batches as floating point; leave out tensors whose shapes differ."""
    found = {}
    for name, first in parts[0].items():
        arrays = [part[name] for part in parts]
        if first.dtype.name == "bfloat16":  # a package adds this type to NumPy
            arrays = [array.astype(np.float32) for array in arrays]
        if arrays[0].dtype.kind in "biuf" and all(
            array.ndim and array.shape[1:] == first.shape[1:] for array in arrays
        ):
            whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            spec = graph.tensors.get(name)
            found[name] = whole if spec is None else dequantize_values(whole, spec)
    return found


def _split_values(array: Any, lengths: Sequence[int]) -> list[Any]:
    """Return joined values split into batches again."""
    return [array] if len(lengths) == 1 else np.split(array, len(lengths))


def _encode_values(array: Array, spec: TensorSpec | None) -> Any:
    """Return real numbers in the form in which the model stores them."""
    if spec is None or spec.scale is None:
        return array.astype("float32" if spec is None or spec.dtype == "bfloat16" else spec.dtype)
    return quantize_linear(array, spec.scale, spec.zero_point, spec.dtype, spec.axis)


_INTEGERS = re.compile("quant|integer|nbits", re.IGNORECASE)
_EVERYTHING = Selector(tensor="*")
_SAMPLES = 8


@dataclass(frozen=True)
class Divergence:
    """Where two models begin to differ, in the order in which the source computes.

    Parameters
    ----------
    levels
        The signal-to-noise ratio of each tensor that both have.
    suspects
        Operations whose values differ from the source's by more than the conversion
        claims, the worst first.
    coarsest
        Operations that lose most by rounding, if nothing is wrong.
    shown
        The file that was inspected, if it is not the artifact itself.
    adopted
        Whether the source computed with the other model's weights, which were changed on purpose.
    """

    levels: tuple[Level, ...]
    suspects: tuple[Suspect, ...]
    coarsest: tuple[Suspect, ...] = ()
    shown: str = ""
    adopted: bool = False

    @property
    def compared(self) -> int:
        """The number of tensors that both have."""
        return len(self.levels)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON can hold it."""
        return {
            "compared": self.compared,
            "tensors": [level.to_json() for level in self.levels],
            "suspects": [suspect.to_json() for suspect in self.suspects],
            "coarsest": [suspect.to_json() for suspect in self.coarsest],
            "shown": self.shown,
            "adopted": self.adopted,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Divergence:
        """Return the comparison that :meth:`to_json` described."""
        levels = tuple(Level(**level) for level in data["tensors"])
        suspects, rest = (
            tuple(map(Suspect.from_json, data[key])) for key in ("suspects", "coarsest")
        )
        return cls(levels, suspects, rest, data["shown"], data["adopted"])

    def __str__(self) -> str:
        seen = f"{self.compared} tensors compared"
        if self.shown:
            seen += f" (of {self.shown}; of the file itself, only outputs can be compared)"
        if not self.suspects:
            with_weights = ", with these weights" if self.adopted else ""
            return f"no operation does anything else than it should{with_weights}: {seen}"
        lines = [f"{place}. {suspect}" for place, suspect in enumerate(self.suspects[:3], 1)]
        more = f", the first 3 of {len(self.suspects)}" if len(self.suspects) > 3 else ""
        return join_lines([f"suspects{more}; {seen}:", *lines])


@dataclass(frozen=True)
class PairedValues:
    """The corresponding tensors of two models on some samples.

    Parameters
    ----------
    source
        The source.
    graph, other_graph
        The operations of the source and of the other model.
    pairs
        The corresponding tensors, in the order in which the source computes.
    recompute
        Runs the source on these samples.
    outputs
        The other model's tensor for each output of the source.
    other_rerun
        Runs the other model on these samples.
    other_shapes
        The shapes of the other model's tensors.
    """

    source: LiveModel
    graph: Graph
    other_graph: Graph
    pairs: Sequence[Pair]
    recompute: Rerun
    outputs: Mapping[str, str]
    other_rerun: Rerun
    other_shapes: Mapping[str, tuple[int, ...]]

    def get_replacements(self) -> dict[str, Array]:
        """Return the other model's values by the source's tensors, for the operations that
        follow.
        """
        return {
            pair.source.tensor: pair.found
            for pair in self.pairs
            if pair.source.tensor not in self.outputs
        }


def match_values(
    source: LiveModel,
    other: LiveModel,
    binding: Binding,
    samples: Sequence[Batch],
    claims: Iterable[Claim],
    absent: Collection[str] = (),
) -> PairedValues:
    """Run two models and find out which of their tensors correspond.

    Parameters
    ----------
    source, other
        The two models.
    binding
        The correspondence of their inputs and outputs.
    samples
        Inputs of the source, those with the largest errors first.
    claims
        The claims of the conversion.
    absent
        Tensors of the source that the other model does not compute.

    Raises
    ------
    NotSupported
        If no intermediate tensors correspond, or one model cannot return any.
    """
    graph, other_graph = source.get_inference_graph(), other.get_inference_graph()
    batches = build_batches((source, other), list(samples[:_SAMPLES]))
    taken = binding.to_other_specs(source.io.inputs)
    turned = [adapt(binding.to_other(batch), taken, other.io.inputs) for batch in batches]
    values = join_values(
        [other.get_intermediates(_EVERYTHING, batch) for batch in turned], other_graph
    )
    recompute = Rerun(source, graph, batches)
    outputs = _match_outputs(source, graph, other, other_graph, binding)
    places = [place for place in _list_computed_tensors(graph) if place.tensor not in absent]
    pairs = TensorPairing(
        places,
        _list_computed_tensors(other_graph),
        values,
        recompute,
        outputs,
        get_sure_threshold(claims),
        source.wrapper.channel_axis,
        _compute_at_zero(recompute, outputs),
    ).find_pairs()
    if not pairs:
        raise NotSupported("no intermediate tensor of one side goes with one of the other")
    shapes = {name: array.shape for name, array in values.items()}
    return PairedValues(
        source,
        graph,
        other_graph,
        pairs,
        recompute,
        outputs,
        Rerun(other, other_graph, turned),
        shapes,
    )


def find_divergence(values: PairedValues, claims: Iterable[Claim]) -> Divergence:
    """Judge each operation of the source by its counterpart's values; ``claims`` are those of
    the conversion.
    """
    graph, pairs, axis, claims = (
        values.graph,
        values.pairs,
        values.source.wrapper.channel_axis,
        tuple(claims),
    )
    at_rest = values.recompute(
        {pair.source.tensor: np.zeros_like(pair.expected) for pair in pairs}, resting=True
    )
    computed, weighted = _map_inputs(graph), _map_weighted(graph)
    places = _list_computed_tensors(values.other_graph)
    exact = _find_unrounded(values) if get_lowest_precision(claims) in WEIGHTS_ONLY else ()
    dynamic = (
        get_lowest_precision(claims) == "int8-weights"
    )  # operations round their inputs themselves
    rounded = (
        {name: round_to_8_bits(array) for name, array in values.get_replacements().items()}
        if dynamic
        else {}
    )
    from_rounded = values.recompute(rounded) if rounded else {}
    levels, suspects = find_suspects(
        pairs, axis, claims, computed, weighted, places, at_rest, exact, from_rounded
    )
    return Divergence(levels, suspects, rank_coarsest(levels, weighted))


def _find_unrounded(values: PairedValues) -> set[str]:
    """Return the source's tensors of pairs that both models compute without integers, and the
    source without weights.

    They are computed from the pairs before them.
    """
    graph, other_graph = values.graph, values.other_graph
    known, paired = (
        {pair.source.tensor for pair in values.pairs},
        {pair.other.tensor for pair in values.pairs},
    )
    computed, others, within = (
        _map_inputs(graph),
        _map_inputs(other_graph),
        find_weighted_operations(values),
    )
    rounded, rounded_there = _find_integer_tensors(graph), _find_integer_tensors(other_graph)
    return {
        pair.source.tensor
        for pair in values.pairs
        if not within[pair.source.tensor]
        and rounded.isdisjoint(find_unknown_predecessors(pair.source.tensor, known, computed))
        and rounded_there.isdisjoint(find_unknown_predecessors(pair.other.tensor, paired, others))
    }


def _find_integer_tensors(graph: Graph) -> set[str]:
    """Return the tensors that are computed with integers that stand for real numbers."""
    scaled = {name for name, spec in graph.tensors.items() if spec.scale is not None}
    return {
        tensor
        for operation in graph.operations
        if _INTEGERS.search(operation.kind)
        or not scaled.isdisjoint((*operation.inputs, *operation.outputs))
        for tensor in operation.outputs
    }


def find_weighted_operations(values: PairedValues) -> dict[str, tuple[str, ...]]:
    """Return by tensor of each pair the source's operations with weights that compute it from
    the pairs before it.
    """
    computed, weighted = _map_inputs(values.graph), _map_weighted(values.graph)
    known = {pair.source.tensor for pair in values.pairs}
    return {
        tensor: tuple(
            name
            for each in find_unknown_predecessors(tensor, known, computed)[::-1]
            for name in weighted.get(each, ())
        )
        for tensor in known
    }


def _map_inputs(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return by tensor the inputs of the operation that computes it."""
    return {
        tensor: operation.inputs for operation in graph.operations for tensor in operation.outputs
    }


def _map_weighted(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return by tensor the operation that computes it, if it uses weights."""
    live = find_varying_tensors(graph)
    return {
        tensor: (operation.name,)
        for operation in graph.operations
        if not live.issuperset(operation.inputs)
        for tensor in operation.outputs
        if tensor in live
    }


def update_verdict(
    found: Mapping[str, Any], where: Divergence | None, weights: WeightComparison | None = None
) -> dict[str, Any]:
    """Return the verdict and reason that weights and operations add to those of the outputs, if
    they change them.

    What a difference comes from is stated only if undoing it makes the outputs equal; otherwise it
    is a suspicion.
    """
    on_purpose = found["verdict"] == "changed on purpose"
    # A model that was changed on purpose computes other values, unless the source is given its
    # weights.
    suspects = () if where is None or (on_purpose and not where.adopted) else where.suspects
    suspects = tuple(each for each in suspects if each.effect != "none")
    wrong = () if weights is None else weights.wrong
    if suspects:
        first = suspects[0]
        told = " with these weights" if where is not None and where.adopted else ""
        cause = "the cause is" if first.effect == "all" else "most suspect is"
        return {
            "verdict": "different",
            "reason": f"{_format_fault(found, told)}: {cause} {first.name!r}: {first.told}",
        }
    if wrong:
        reason = (
            f"{_format_fault(found)}: most suspect are the weights {wrong[0].name!r}: "
            f"{wrong[0].wrong}"
        )
        return {"verdict": "different", "reason": reason}
    if on_purpose:
        told = (
            "its weights could not be compared"
            if weights is None
            else f"weights: {weights.describe()}"
        )
        return {"reason": f"{found['reason']}; {told}"}
    return {}


def _format_fault(found: Mapping[str, Any], told: str = "") -> str:
    outputs = f": {found['reason']}" if found["verdict"] == "different" else ""
    return f"it does not compute what it should{told}{outputs}"


def _compute_at_zero(recompute: Rerun, outputs: Iterable[str]) -> dict[str, Any]:
    """Return what each operation of the source computes if all its inputs are 0."""
    zeros = {
        name: np.zeros_like(array)
        for name, array in recompute({}).items()
        if has_distinct_numbers(array)
    }
    return recompute(
        {name: array for name, array in zeros.items() if name not in outputs}, resting=True
    )


def _list_computed_tensors(graph: Graph) -> list[ComputedTensor]:
    live = find_varying_tensors(graph)
    return [
        ComputedTensor(tensor, operation.name, operation.kind, operation.layer, operation.inputs)
        for operation in sort_operations(graph)
        for tensor in operation.outputs
        if tensor in live
    ]


def _match_outputs(
    source: LiveModel, graph: Graph, other: LiveModel, other_graph: Graph, binding: Binding
) -> dict[str, str]:
    """Return the other model's tensor for each output of the source."""
    theirs = dict(zip((spec.name for spec in other.io.outputs), other_graph.outputs, strict=True))
    own = zip((spec.name for spec in source.io.outputs), graph.outputs, strict=True)
    return {tensor: theirs[binding.names.get(name, name)] for name, tensor in own}
