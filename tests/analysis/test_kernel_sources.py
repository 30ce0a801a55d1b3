"""The operations of fused steps are found by the names of tensors, and between them by who reads
what.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.kernel_sources import match_kernels_to_operations
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.operation_times import KernelTime
from nnpipe.core.primitives import ConvolutionPrimitive, PlainPrimitive
from nnpipe.core.tensors import TensorSpec

CONV = (ConvolutionPrimitive(64, (1, 1), 8, 8),)
PLAIN = (PlainPrimitive("elementwise", "add"),)


def graph(*rows: tuple[str, str, str]) -> Graph:
    """Return a graph of ``(name, inputs, output)``; names that begin with c are convolutions."""
    operations = tuple(
        Operation(
            name,
            name[0],
            tuple(taken.split()),
            (made,),
            primitives=CONV if name[0] == "c" else PLAIN,
        )
        for name, taken, made in rows
    )
    names = {name for each in operations for name in (*each.inputs, *each.outputs)}
    return Graph(
        operations,
        {n: TensorSpec(n, (1, 8), "float32") for n in names},
        ("x",),
        (operations[-1].outputs[0],),
    )


def step(name: str, *sources: str, after: tuple[str, ...] = (), kind: str = "Conv") -> KernelTime:
    return KernelTime(name, kind, np.ones(2), sources=sources, after=after)


def test_what_lies_before_a_named_tensor_belongs_to_its_step() -> None:
    net = graph(("c1", "x", "t"), ("mul", "t", "u"), ("relu", "u", "v"), ("c2", "v", "y"))
    found = match_kernels_to_operations(net, [step("one", "v"), step("two", "y", after=("one",))])
    assert found == {"one": ("c1", "mul", "relu"), "two": ("c2",)}


def test_a_sum_belongs_to_the_step_that_reads_its_other_term() -> None:
    net = graph(
        ("c1", "x", "a"),
        ("c2", "a", "b"),
        ("add", "a b", "s"),
        ("relu", "s", "r"),
        ("c3", "r", "t"),
        ("clip", "t", "y"),
    )
    steps = [step("one", "a"), step("two", "b", after=("one",)), step("three", "y", after=("two",))]
    assert match_kernels_to_operations(net, steps) == {
        "one": ("c1",),
        "two": ("c2", "add", "relu"),
        "three": ("c3", "clip"),
    }


def test_a_conversion_of_a_result_is_not_what_computes_it() -> None:
    net = graph(("c1", "x", "y"))
    steps = [step("one", "y"), step("two", "y", after=("one",), kind="ReorderOutput")]
    assert match_kernels_to_operations(net, steps) == {"one": ("c1",), "two": ()}


@pytest.mark.parametrize(
    "kind", ["ConvTranspose", "DynamicQuantizeMatMul", "TRANSPOSE_CONV", "Conv2DTranspose"]
)
def test_what_computes_is_no_conversion_although_its_name_has_the_word(kind: str) -> None:
    net = graph(("c1", "x", "t"), ("c2", "t", "y"))
    steps = [step("one", "t", kind=kind), step("two", "y", after=("one",))]
    assert match_kernels_to_operations(net, steps) == {"one": ("c1",), "two": ("c2",)}


def test_what_several_steps_need_is_computed_before_them() -> None:
    net = graph(
        ("c1", "x", "a"), ("add", "a", "b"), ("c2", "b", "s"), ("c3", "b", "t"), ("sum", "s t", "y")
    )
    steps = [step("one", "a"), step("two", "s"), step("three", "t"), step("four", "y")]
    assert match_kernels_to_operations(net, steps)["one"] == ("c1", "add")
