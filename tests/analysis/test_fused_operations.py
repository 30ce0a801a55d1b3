"""What a runtime fuses, learnt from steps that were recorded."""

from __future__ import annotations

from nnpipe.analysis.kernels import (
    FusionPattern,
    find_fusion_patterns,
    get_operation_word,
    split_into_steps,
)
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import ConvolutionPrimitive, PlainPrimitive, PoolingPrimitive
from nnpipe.core.tensors import TensorSpec

CONVOLUTION = ConvolutionPrimitive(16, (3, 3), 4, 4)
ADD, RELU = PlainPrimitive("elementwise", "add"), PlainPrimitive("elementwise", "relu")


def graph_of(*operations: tuple[str, object, tuple[str, ...]], outputs: tuple[str, ...]) -> Graph:
    """Return a graph of operations, each with the name of its only result, what it computes, and
    what it reads.
    """
    found = tuple(
        Operation(name, name, reads, (name,), primitives=(what,))
        for name, what, reads in operations
    )
    names = {"x", *(name for name, _, _ in operations)}
    return Graph(
        found, {name: TensorSpec(name, (1, 4, 4, 4), "float32") for name in names}, ("x",), outputs
    )


BLOCK = graph_of(
    ("conv1", CONVOLUTION, ("x",)),
    ("relu1", RELU, ("conv1",)),
    ("conv2", CONVOLUTION, ("relu1",)),
    ("add", ADD, ("conv2", "x")),
    ("relu2", RELU, ("add",)),
    outputs=("relu2",),
)
STEPS = [("conv1", "relu1"), ("add", "conv2", "relu2")]


def test_chains_that_were_fused_are_fused_in_other_graphs() -> None:
    patterns = find_fusion_patterns([(BLOCK, STEPS, ())])
    assert set(patterns) == {
        FusionPattern(("convolution", "relu"), ((), (0,))),
        FusionPattern(("convolution", "add", "relu"), ((), (0,), (1,))),
    }
    assert [FusionPattern.from_json(each.to_json()) for each in patterns] == list(patterns)
    other = graph_of(
        ("a", CONVOLUTION, ("x",)),
        ("b", CONVOLUTION, ("x",)),
        ("sum", ADD, ("a", "b")),
        ("end", RELU, ("sum",)),
        outputs=("end",),
    )
    assert split_into_steps(other, patterns) == (("a", "sum", "end"), ("b",))


def test_what_others_read_as_well_is_not_fused() -> None:
    patterns = find_fusion_patterns([(BLOCK, STEPS, ())])
    shared = graph_of(
        ("conv", CONVOLUTION, ("x",)),
        ("relu", RELU, ("conv",)),
        ("again", ADD, ("relu", "conv")),
        outputs=("again",),
    )
    assert split_into_steps(shared, patterns) == (("conv",), ("relu",), ("again",))
    leaving = graph_of(
        ("conv", CONVOLUTION, ("x",)), ("relu", RELU, ("conv",)), outputs=("conv", "relu")
    )
    assert split_into_steps(leaving, patterns) == (("conv",), ("relu",))


def test_what_is_mostly_not_fused_is_no_pattern() -> None:
    alone = [("conv1",), ("relu1",), ("conv2",), ("add",), ("relu2",)]
    assert find_fusion_patterns([(BLOCK, STEPS, ()), (BLOCK, alone, ()), (BLOCK, alone, ())]) == ()


def test_words_are_those_of_all_frameworks() -> None:
    operation = Operation(
        "a", "A", (), (), primitives=(CONVOLUTION, PlainPrimitive("elementwise", "RELU6"))
    )
    assert get_operation_word(operation) == "convolution + clip"
    assert (
        get_operation_word(Operation("a", "A", (), (), primitives=(PoolingPrimitive("max"),)))
        == "max over all"
    )
    assert get_operation_word(Operation("a", "A", (), ())) == ""
