"""A model and the outputs of a file that exposes nothing else: which faults in operations would explain these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import bounded, power
from nnpipe.analysis.compiled_weights import Kernel, KernelMatch
from nnpipe.analysis.suspect_operations import Level, Suspect
from nnpipe.analysis.weights_in_use import has_no_effect
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch
from nnpipe.workflows.verification.graph_order import in_order, varying
from nnpipe.workflows.verification.model_weights import source_types
from nnpipe.workflows.verification.rerun import Rerun, batches_of

_HEARD = 1e-6  # share of the outputs' power; a channel that adds less may round to nothing
_FUSED = 3  # operations that converters fuse: a layer, its normalisation and its activation


@dataclass(frozen=True)
class Fault:
    """An operation, its fault, and the share of the outputs' difference that the fault leaves unexplained."""

    residual: float
    operation: str
    told: str
    sure: bool = False


@dataclass(frozen=True)
class OpaqueCase:
    """A source, its values for some samples, and the file's outputs for them."""

    source: LiveModel
    graph: Graph
    rerun: Rerun
    values: Mapping[str, Any]
    here: Mapping[str, Any]
    there: Mapping[str, Any]

    @classmethod
    def of(
        cls, source: LiveModel, samples: Sequence[Batch], ours: Sequence[Batch], theirs: Sequence[Batch]
    ) -> OpaqueCase:
        """Run the source and return the case."""
        graph = source.get_inference_graph()
        names = dict(zip((spec.name for spec in source.io.outputs), graph.outputs, strict=True))
        here, there = (
            {t: np.concatenate([batch[name] for batch in side]).astype(np.float64) for name, t in names.items()}
            for side in (ours, theirs)
        )
        rerun = Rerun(source, graph, batches_of((source,), samples))
        return cls(source, graph, rerun, rerun({}), here, there)

    @property
    def varying(self) -> set[str]:
        """The tensors that depend on the inputs."""
        return varying(self.graph)

    def kernels(self) -> dict[str, Kernel]:
        """Return the weights of each operation that has weights with more than one axis."""
        weights, found = self.source.get_weights(), {}
        makers = {tensor: operation for operation in self.graph.operations for tensor in operation.outputs}
        varying = self.varying
        for operation in in_order(self.graph):
            if not operation.outputs or operation.outputs[0] not in varying:
                continue
            names = [
                name for name in _constants(operation, makers, weights, self.values, varying) if weights[name].ndim > 1
            ]
            value = self.values.get(operation.outputs[0])
            if len(names) != 1 or value is None or value.ndim < 2:
                continue
            kernel = np.asarray(weights[names[0]])
            count = value.shape[self.axis_of(value, kernel)]
            axes = tuple(axis for axis, length in enumerate(kernel.shape) if length == count)
            if axes and count > 1:
                found[operation.name] = Kernel(operation.name, kernel, axes, names[0])
        return found

    def axis_of(self, value: Any, weights: Any) -> int:
        """Return the axis of channels of an operation's result; of a product with a matrix, that is the last one."""
        rank = int(value.ndim)
        if weights.ndim == 2 and value.shape[-1] in weights.shape:
            return rank - 1
        return min(self.source.wrapper.channel_axis % rank, rank - 1)

    def faults(self) -> Iterable[Fault]:
        """Yield faults that leave no trace in weights: a missing or doubled bias, an operation computed twice."""
        zeros = {name: np.zeros_like(array) for name, array in self.values.items() if array.dtype.kind == "f"}
        resting = self.rerun(zeros, resting=True)
        varying = self.varying
        for operation in in_order(self.graph):
            tensor = operation.outputs[0] if operation.outputs else ""
            if tensor not in varying or varying.issuperset(operation.inputs) or tensor not in self.values:
                continue
            value, rest = self.values[tensor], resting.get(tensor)
            if rest is not None and rest.shape == value.shape and np.any(rest):
                yield Fault(self.left_by({tensor: value - rest}), operation.name, "its bias is missing")
                yield Fault(self.left_by({tensor: value + rest}), operation.name, "its bias is added once too often")
        users = Counter(name for operation in self.graph.operations for name in operation.inputs)
        for operation in in_order(self.graph):
            taken = [name for name in operation.inputs if name in self.values and name in varying]
            if not taken or (len(taken) == 1 and varying.issuperset(operation.inputs)):
                continue
            # Operations that a converter fuses are computed twice together.
            for tensor in self._chain(operation, users):
                shape = self.values[tensor].shape
                begin = next((name for name in taken if self.values[name].shape == shape), None)
                if begin is not None:
                    again = self.rerun({begin: self.values[tensor]}, tensor)[tensor]
                    yield Fault(self.left_by({tensor: again}), operation.name, "it is computed twice")

    def _chain(self, operation: Operation, users: Mapping[str, int]) -> list[str]:
        """Return the operation's tensor, and the following ones that depend only on it."""
        found: list[str] = []
        following: Operation | None = operation
        while following is not None and following.outputs and len(found) < _FUSED:
            tensor = following.outputs[0]
            if tensor not in self.values:
                break
            found.append(tensor)
            after = [one for one in self.graph.operations if tensor in one.inputs]
            alone = len(after) == 1 == users[tensor] and len(self.varying.intersection(after[0].inputs)) == 1
            following = after[0] if alone else None
        return found

    def residual(self, kernel: Kernel, held: KernelMatch) -> float:
        """Return the share of the difference that misplaced channels leave unexplained."""
        if len(held.wrong) != len(held.moved) + len(held.silent) or held.other:
            return 0.0  # the replacement is not known
        return self.left_by(self._spoilt(kernel, held))

    def heard(self, kernel: Kernel, held: KernelMatch) -> KernelMatch:
        """Return the match without zero channels that have no effect in the source either: these may round to zero."""
        silent = tuple(
            channel for channel in held.silent if self._loud(self._spoilt(kernel, KernelMatch(1, silent=(channel,))))
        )
        return replace(held, silent=silent)

    def in_use(self, kernel: Kernel, held: KernelMatch) -> KernelMatch:
        """Return the match without other numbers that have no effect: something else in the file makes up for them."""
        if not held.there:
            return held
        adopted = held.adopted(kernel.weights)
        self.source.set_weights(source_types(self.source, {kernel.name: adopted}))
        try:
            changed = {tensor: self.rerun({}, tensor)[tensor].astype(np.float64) for tensor in self.there}
        finally:
            self.source.set_weights({kernel.name: kernel.weights})
        # A source that returns intermediate values may round differently than when it runs as a whole.
        none = all(
            has_no_effect(self.here[tensor], self.here[tensor] + (other - self.values[tensor]), self.there[tensor], 1)
            for tensor, other in changed.items()
        )
        return replace(held, other=(), there={}) if none else held

    def _loud(self, given: Mapping[str, Any]) -> bool:
        """Return whether these values change the source's outputs noticeably."""
        for tensor in self.there:
            found = self.rerun(given, tensor)[tensor] if tensor not in given else given[tensor]
            change = found.astype(np.float64) - self.values[tensor]
            if np.sum(np.square(change)) > _HEARD * np.sum(np.square(self.here[tensor])):
                return True
        return False

    def _spoilt(self, kernel: Kernel, held: KernelMatch) -> dict[str, Any]:
        """Return an operation's values with misplaced or zero channels, by its tensor."""
        tensor = next(one.outputs[0] for one in self.graph.operations if one.name == kernel.operation)
        value = self.values[tensor]
        axis = self.axis_of(value, kernel.weights)
        spoilt = np.moveaxis(value.copy(), axis, 0)
        original = spoilt.copy()
        for channel, place in held.moved.items():
            spoilt[place] = original[channel]
        for channel in held.silent:
            spoilt[channel] = 0
        return {tensor: np.moveaxis(spoilt, 0, axis)}

    def left_by(self, given: Mapping[str, Any]) -> float:
        """Return the share of the difference that remains if the source continues with these values."""
        left = whole = 0.0
        for tensor, there in self.there.items():
            found = self.rerun(given, tensor)[tensor] if tensor not in given else given[tensor]
            # A source that returns intermediate values may round differently than when it runs as a whole.
            change, seen = found.astype(np.float64) - self.values[tensor], there - self.here[tensor]
            scale = float(np.sum(np.square(self.here[tensor]))) or 1.0
            left += float(np.sum(np.square(seen - change))) / scale
            whole += float(np.sum(np.square(seen))) / scale
        return left / whole if whole > 0 and np.isfinite(left) else np.inf

    def differs(self, noise_to_signal: float) -> bool:
        """Return whether an output differs by more than the claimed rounding."""
        pairs = ((self.here[tensor], there) for tensor, there in self.there.items())
        return any(np.sum(np.square(there - own)) > noise_to_signal * np.sum(np.square(own)) for own, there in pairs)

    def suspect(self, found: Fault) -> Suspect:
        """Return the fault as a suspect."""
        operation = next(one for one in self.graph.operations if one.name == found.operation)
        ours, theirs = (np.concatenate([a.ravel() for a in side.values()]) for side in (self.here, self.there))
        level = float(bounded(power(ours), power(theirs - ours)))
        at = Level(operation.outputs[0], operation.name, operation.kind, operation.layer, "", level, level, level, 0.0)
        return Suspect(found.operation, at, (found.operation,), (), found.told)


def _constants(
    operation: Operation,
    makers: Mapping[str, Operation],
    weights: Mapping[str, Any],
    values: Mapping[str, Any],
    varying: set[str],
) -> list[str]:
    """Return the weights that an operation takes, including those that are reshaped or converted first.

    A table from which entries are picked first is left out: a file may hold the result instead.
    """
    found, waiting, seen = [], [(name, name) for name in operation.inputs if name not in varying], set()
    while waiting:
        name, taken = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in weights:
            if taken not in values or values[taken].size == weights[name].size:
                found.append(name)
        elif name in makers:
            waiting += [(each, taken) for each in makers[name].inputs]
    return found
