"""Operations with wrong weights are named before those that only compute other values."""

from __future__ import annotations

from nnpipe.analysis.suspect_operations import Level, Suspect
from nnpipe.analysis.weight_changes import WeightChange, WeightComparison
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.tensors import TensorSpec
from nnpipe.workflows.verification.first_difference import Divergence
from nnpipe.workflows.verification.undoing import sort_by_weights

LEVEL = Level("b", "norm", "Norm", "", "", 1.0, 1.0, 1.0, 3.0)
SOURCE = (
    Operation("conv", "Conv", ("x", "w"), ("a",)),
    Operation("norm", "Norm", ("a", "scale"), ("b",)),
)
OTHER = (
    Operation("wide", "DequantizeLinear", ("codes", "step"), ("numbers",)),
    Operation("fused", "Conv", ("x", "numbers"), ("y",)),
)


def graph(operations: tuple[Operation, ...], output: str) -> Graph:
    names = {name for operation in operations for name in (*operation.inputs, *operation.outputs)}
    tensors = {name: TensorSpec(name, (1,), "float32") for name in names}
    return Graph(operations, tensors, ("x",), (output,))


def change(wrong: str) -> WeightChange:
    return WeightChange("w", "codes", "values", "", 0.5, None, 0.25, 0.0, None, 0, (1,), (), wrong)


def led(suspects: tuple[Suspect, ...], wrong: str = "channel 1 differs") -> tuple[Suspect, ...]:
    where = Divergence((), suspects)
    weights = WeightComparison(("int8",), (change(wrong),))
    return sort_by_weights(where, graph(SOURCE, "b"), graph(OTHER, "y"), weights).suspects


def test_the_operation_comes_first_and_what_computes_with_the_weight_there_is_found() -> None:
    behind = Suspect("norm", LEVEL, ("norm",), ("other",), "there is noise")
    first, second = led((behind,))
    assert (first.name, first.within, first.there, first.told) == (
        "conv",
        ("conv",),
        ("fused",),
        "channel 1 differs",
    )
    assert second is behind


def test_what_values_and_weights_tell_of_an_operation_is_told_together() -> None:
    known = Suspect("conv", LEVEL, ("conv",), ("seen",), "there is noise")
    (only,) = led((known,))
    assert only.told == "there is noise; channel 1 differs"
    assert {*only.there} == {"seen", "fused"}
    assert only.level is LEVEL


def test_sound_weights_change_nothing() -> None:
    behind = Suspect("norm", LEVEL, ("norm",), ("other",), "there is noise")
    assert led((behind,), wrong="") == (behind,)
