"""Quantisation of PyTorch programs that leaves integers and some tensors as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnpipe.compilers._float_tensors import GraphStep, touching
from nnpipe.core.errors import CompileError
from nnpipe.frameworks.torch_program import QUANTISED

# Operators whose rounded result is that of a rounded input, and normalisations, which become part of convolutions.
_PASSING = frozenset(
    (
        "relu", "relu6", "hardtanh", "clamp", "max_pool2d", "max_pool1d", "view", "reshape", "flatten", "permute",
        "transpose", "t", "squeeze", "unsqueeze", "dropout", "contiguous", "batch_norm",
        "_native_batch_norm_legit_no_training",
    )
)  # fmt: skip
_ANNOTATION = "quantization_annotation"


def keeping_types(
    quantiser: Any,
    kept: Callable[[Sequence[GraphStep]], set[str]] | None = None,
    before: Sequence[GraphStep] = (),
) -> Any:
    """Return a quantiser that does what another does, but leaves integers and some tensors of floats as they are.

    XNNPACK's quantiser (ExecuTorch 1.5) also observes integers, such as indices, of which PyTorch computes no
    histogram.

    Parameters
    ----------
    quantiser
        A ``Quantizer`` of torchao.
    kept
        Returns the tensors to keep in floats, given the operations of the program; by default none.
    before
        The operations of the program before torchao changes it, from :func:`steps_of`: a normalisation that is folded
        into a convolution stands for the convolution then.
    """
    from torchao.quantization.pt2e.quantizer import Quantizer

    class TypeKeeping(Quantizer):  # type: ignore[misc]
        def transform_for_annotation(self, model: Any) -> Any:
            return quantiser.transform_for_annotation(model)

        def annotate(self, model: Any) -> Any:
            model = quantiser.annotate(model)
            untouched = {node for node in model.graph.nodes if _takes_or_gives_integers(node)}
            if kept is not None:
                steps = steps_of(model)
                there = {step.name for step in steps}
                steps += [step for step in before if step.passing and step.name not in there]
                floats = {step.name for step in touching(kept(steps), steps)}
                untouched |= {node for node in model.graph.nodes if node.name in floats}
            _withdraw(model, untouched)
            return model

        def validate(self, model: Any) -> None:
            quantiser.validate(model)

    return TypeKeeping()


def steps_of(model: Any, inputs: Sequence[str] = ()) -> list[GraphStep]:
    """Return the operations and inputs of a ``torch.fx.GraphModule``.

    Parameters
    ----------
    model
        The module.
    inputs
        Names by which its inputs are known, in order.
    """
    found, names = [], iter(inputs)
    for node in model.graph.nodes:
        if node.op in ("placeholder", "call_function"):
            taken = tuple(given.name for given in node.all_input_nodes if given.op != "get_attr")
            found.append(GraphStep(node.name, taken, (node.name,), operator_kind(node) in _PASSING))
        if node.op == "placeholder" and (known := next(names, node.name)) != node.name:
            found.append(GraphStep(known, (node.name,), (known,), passing=True))
    return found


def operator_kind(node: Any) -> str:
    """Return the name of a node's operator, such as ``linear``; empty if it calls none."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).partition("::")[2].removesuffix("_")


def _takes_or_gives_integers(node: Any) -> bool:
    """Return whether a node is to be quantised although it computes integers, or takes some."""
    annotation = node.meta.get(_ANNOTATION)
    return annotation is not None and any(map(_is_integer, (node, *annotation.input_qspec_map)))


def _is_integer(node: Any) -> bool:
    value = node.meta.get("val")
    return getattr(value, "dtype", None) is not None and not value.is_floating_point()


def _withdraw(model: Any, floats: set[Any]) -> None:
    """Remove the annotations of nodes, and of those that share the scale of such a node."""
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    waiting = set(floats)
    while waiting:
        for node in waiting:
            node.meta.pop(_ANNOTATION, None)
        waiting = set()
        for node in model.graph.nodes:
            if (annotation := node.meta.get(_ANNOTATION)) is None:
                continue
            specs = [annotation.output_qspec, *annotation.input_qspec_map.values()]
            shared = [spec.edge_or_node for spec in specs if isinstance(spec, SharedQuantizationSpec)]
            owners = {place[1] if isinstance(place, tuple) else place for place in shared}
            if any(_ANNOTATION not in owner.meta for owner in owners):
                waiting.add(node)


def check_quantised(module: Any, quantiser: str) -> None:
    """Raise :class:`~nnpipe.core.errors.CompileError` unless a quantised module computes something in integers."""
    if not any(str(node.target).startswith(QUANTISED) for node in module.graph.nodes):
        raise CompileError(
            f"the {quantiser} quantiser knows none of its operators or leaves numbers of their type, or all of "
            "them are kept in floats"
        )
