"""Inference of shapes and weights from a graph, with all its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError
from typing import TYPE_CHECKING

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.problems import Misfit, NetworkProblem
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape

if TYPE_CHECKING:
    from nnpipe.layers.graph.graph import NetworkGraph


@dataclass(frozen=True, order=True)
class Ref:
    """An output of a call of a layer: the layer's name, the number of the call, the number of
    the output.
    """

    layer: str
    call: int = 0
    output: int = 0

    def __str__(self) -> str:
        return self.layer + (
            f" (call {self.call}, output {self.output})" if self.call or self.output else ""
        )


@dataclass(frozen=True)
class Use:
    """One call of a layer.

    Attributes
    ----------
    inputs
        The tensors that it is applied to, in order.
    training
        Whether it behaves as in training; ``None`` to follow the whole network.
    form
        Arguments of the call that the vocabulary does not know, as JSON, with
        ``{"input": i}`` in place of the tensors; usually ``None``.
    """

    inputs: tuple[Ref, ...] = ()
    training: bool | None = None
    form: Raw | None = None


@dataclass(frozen=True)
class LayerEntry:
    """A layer of a graph and all its calls."""

    layer: Layer
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class InferredShapes:
    """The shapes and weights of a graph.

    Attributes
    ----------
    shapes
        The shape of every output of every call, as far as it could be inferred.
    variables
        The weights of every layer, as far as they could be inferred.
    problems
        Everything that is wrong.
    """

    shapes: Mapping[Ref, Shape]
    variables: Mapping[str, tuple[LayerVariable, ...]]
    problems: tuple[NetworkProblem, ...]


def infer(graph: NetworkGraph) -> InferredShapes:
    """Infer shapes and weights, and check the whole graph; independent faults are all reported."""
    check_call(infer, locals())
    problems = _check_all_arguments(graph) + _check_references(graph)
    shapes: dict[Ref, Shape] = {}
    variables: dict[str, tuple[LayerVariable, ...]] = {}
    broken = {problem.path.partition(".")[0] for problem in problems if problem.code == "argument"}
    try:
        steps = graph.steps()
    except CycleError as error:
        circle = " -> ".join(name for name, _ in reversed(error.args[1]))
        return InferredShapes(
            {},
            {},
            (
                *problems,
                NetworkProblem("cycle", circle.partition(" ")[0], f"depends on itself: {circle}"),
            ),
        )
    for entry, number in steps:
        layer, use = entry.layer, entry.uses[number]
        if layer.name in broken or not all(ref in shapes for ref in use.inputs):
            continue  # the cause is reported already
        if isinstance(layer, Unknown):
            problems.append(
                NetworkProblem(
                    "unknown-layer", layer.name, f"{layer.class_name} is not in the vocabulary"
                )
            )
            continue
        if use.form is not None:
            problems.append(
                NetworkProblem(
                    "unknown-argument",
                    layer.name,
                    f"is called with what is not known here: {use.form}",
                )
            )
            continue
        if layer.resting and use.training is False:
            message = (
                "is called with training=False, which Keras 3 does not keep for it; leave it out "
                "there"
            )
            problems.append(NetworkProblem("argument", layer.name, message))
        given = tuple(shapes[ref] for ref in use.inputs)
        try:
            found = layer.shapes(*given)
            weights = layer.variables(*given)
        except Misfit as misfit:
            problems.append(
                NetworkProblem(misfit.code, layer.name, f"{type(layer).__name__} {misfit}")
            )
            continue
        if variables.setdefault(layer.name, weights) != weights:
            problems.append(
                NetworkProblem(
                    "shared-shape", layer.name, "would need other weights in a further use"
                )
            )
        shapes |= {Ref(layer.name, number, index): shape for index, shape in enumerate(found)}
    if not any(problem.code == "reference" for problem in problems):
        problems += _find_unused_calls(graph)
    wanted = [*((e.layer.name, r) for e in graph.entries for u in e.uses for r in u.inputs)]
    wanted += [("outputs", ref) for ref in graph.outputs]
    for user, ref in wanted:
        if ref not in shapes and Ref(ref.layer, ref.call) in shapes:
            problems.append(
                NetworkProblem(
                    "reference", user, f"names output {ref.output} of {ref.layer}, which has fewer"
                )
            )
    return InferredShapes(shapes, variables, tuple(problems))


def find_argument_problems(layer: Layer, path: str) -> list[NetworkProblem]:
    """Return what is wrong with a layer's own arguments."""
    found = [NetworkProblem("argument", f"{path}.{name}", fault) for name, fault in layer.faults()]
    for name, value in vars(layer).items():
        if isinstance(value, Raw) and name != "raw":
            found.append(
                NetworkProblem(
                    "unknown-object", f"{path}.{name}", f"not in the vocabulary: {value}"
                )
            )
    return found


def _check_all_arguments(graph: NetworkGraph) -> list[NetworkProblem]:
    return [
        problem
        for entry in graph.entries
        for problem in find_argument_problems(entry.layer, entry.layer.name)
    ]


def _check_references(graph: NetworkGraph) -> list[NetworkProblem]:
    found = []
    for name, count in Counter(entry.layer.name for entry in graph.entries).items():
        if not name:
            found.append(
                NetworkProblem("name", "", f"{count} layer{'s' * (count > 1)} without a name")
            )
        elif count > 1:
            found.append(NetworkProblem("name", name, f"{count} layers have this name"))
    entries = {entry.layer.name: entry for entry in graph.entries}
    for entry in graph.entries:
        for use in entry.uses:
            found += _find_missing_refs(entry.layer.name, use.inputs, entries)
    found += _find_missing_refs("inputs", graph.inputs, entries) + _find_missing_refs(
        "outputs", graph.outputs, entries
    )
    if not graph.outputs:
        found.append(NetworkProblem("reference", "outputs", "the network has no output"))
    inputs = {ref.layer for ref in graph.inputs}
    for name, entry in entries.items():
        if isinstance(entry.layer, Input) != (name in inputs):
            what = (
                "is not among the inputs"
                if isinstance(entry.layer, Input)
                else "is among the inputs and no Input"
            )
            found.append(NetworkProblem("reference", name, what))
    if graph.sequential and not _is_chain(graph):
        found.append(
            NetworkProblem("structure", "", "is said to be sequential and is no chain of layers")
        )
    return found


def _find_unused_calls(graph: NetworkGraph) -> list[NetworkProblem]:
    needed, found = graph.find_needed_calls(), []
    for entry in graph.entries:
        name = entry.layer.name
        unused = [number for number in range(len(entry.uses)) if (name, number) not in needed]
        if unused and len(unused) == len(entry.uses):
            found.append(NetworkProblem("unused", name, "no output depends on it"))
        else:
            found += [
                NetworkProblem("unused", name, f"no output depends on call {number} of it")
                for number in unused
            ]
    return found


def _is_chain(graph: NetworkGraph) -> bool:
    refs = [Ref(entry.layer.name) for entry in graph.entries]
    wanted = [(), *((ref,) for ref in refs)]
    once = all(
        len(e.uses) == 1 and e.uses[0].inputs == w
        for e, w in zip(graph.entries, wanted, strict=False)
    )
    return once and graph.outputs == tuple(refs[-1:])


def _find_missing_refs(
    path: str, refs: tuple[Ref, ...], entries: Mapping[str, LayerEntry]
) -> list[NetworkProblem]:
    found = []
    for ref in refs:
        if ref.layer not in entries:
            found.append(
                NetworkProblem("reference", path, f"names {ref.layer!r}, which is not there")
            )
        elif not 0 <= ref.call < len(entries[ref.layer].uses):
            found.append(
                NetworkProblem(
                    "reference", path, f"names call {ref.call} of {ref.layer!r}, which is not there"
                )
            )
    return found
