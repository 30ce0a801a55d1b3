"""Values in 8 bits that a graph writes in floats are counted in the bytes that move."""

from __future__ import annotations

import pytest

from nnpipe.analysis.kernels import compute_fused_cost
from nnpipe.analysis.operation_costs import GraphCost, compute_graph_cost
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import MatrixProduct, PlainKind, PlainPrimitive, Primitive
from nnpipe.core.tensors import TensorSpec

Step = tuple[str, str, str, Primitive | PlainKind]


def network(*steps: Step, integers: str = "qpru", outputs: str = "y") -> Graph:
    """Return a graph of steps (name, inputs, outputs, kind) on tensors of 100 values with names
    of one letter.
    """
    letters = {letter for _, inputs, given, _ in steps for letter in inputs + given}
    tensors = {
        name: TensorSpec(name, (1, 100), "uint8" if name in integers else "float32")
        for name in sorted(letters)
    } | {"w": TensorSpec("w", (100, 100), "float32")}
    operations = tuple(
        Operation(name, name, tuple(inputs), tuple(given), primitives=(PlainPrimitive(kind, name),))
        if isinstance(kind, str)
        else Operation(name, name, (*inputs, "w"), tuple(given), primitives=(kind,))
        for name, inputs, given, kind in steps
    )
    return Graph(operations, tensors, ("x",), tuple(outputs))


PRODUCT = MatrixProduct(1, 1, 100, 100)
WEIGHTS = 40_000
IN_FLOATS: tuple[Step, ...] = (
    ("to q", "x", "q", "quantisation"),
    ("of q", "q", "a", "quantisation"),
    ("one", "a", "b", PRODUCT),
    ("flat", "b", "c", "view"),
    ("to p", "c", "p", "quantisation"),
    ("of p", "p", "d", "quantisation"),
    ("two", "d", "e", PRODUCT),
    ("relu", "d", "f", "elementwise"),
    ("sum", "ef", "y", "elementwise"),
)


def moved(cost: GraphCost) -> dict[str, tuple[int | None, int | None]]:
    return {each.name: (each.bytes_read, each.bytes_written) for each in cost.operations}


def test_what_moves_between_operations_are_the_integers() -> None:
    cost = compute_graph_cost(network(*IN_FLOATS))
    nothing = (0, 0)
    assert moved(cost) == {
        "to q": (400, 100),
        "of q": nothing,
        "one": (100 + WEIGHTS, 100),
        "flat": nothing,
        "to p": nothing,
        "of p": nothing,
        "two": (100 + WEIGHTS, 400),
        "relu": (100, 400),
        "sum": (800, 400),
    }
    assert {each.name: each.live_bytes for each in cost.operations}["one"] == 100 + 100


def test_a_conversion_that_is_a_step_of_its_own_moves_both_kinds() -> None:
    cost = compute_graph_cost(network(*IN_FLOATS), apart={"to p", "of p"})
    found = moved(cost)
    assert (found["one"], found["to p"], found["of p"]) == (
        (100 + WEIGHTS, 400),
        (400, 100),
        (100, 400),
    )
    assert found["two"] == (400 + WEIGHTS, 400)


@pytest.mark.parametrize("result", ["y", "p"])
def test_what_the_caller_or_another_operation_reads_is_stored_as_it_is(result: str) -> None:
    steps: tuple[Step, ...] = (("one", "x", "y", PRODUCT), ("to p", "y", "p", "quantisation"))
    assert moved(compute_graph_cost(network(*steps, outputs="yp")))["to p"] == (400, 100)
    last: tuple[Step, ...] = (*steps, ("of p", "p", "d", "quantisation"))
    assert moved(compute_graph_cost(network(*last, outputs="d")))["of p"] == (100, 400)


def test_conversions_are_real_where_products_take_integers() -> None:
    steps: tuple[Step, ...] = (
        ("to q", "x", "q", "quantisation"),
        ("one", "q", "r", PRODUCT),
        ("of r", "r", "a", "quantisation"),
        ("two", "a", "b", PRODUCT),
        ("to u", "b", "u", "quantisation"),
        ("three", "u", "y", PRODUCT),
    )
    found = moved(compute_graph_cost(network(*steps)))
    assert (found["of r"], found["two"], found["to u"]) == (
        (100, 400),
        (400 + WEIGHTS, 400),
        (400, 100),
    )


def test_a_fused_step_moves_what_enters_and_leaves_it_wherever_the_conversions_are() -> None:
    cost = compute_graph_cost(network(*IN_FLOATS))
    operations = {each.name: each for each in cost.operations}

    def step(*names: str) -> tuple[int | None, int | None, int | None]:
        found = compute_fused_cost([operations[name] for name in names], cost.stored)
        return found.bytes_read, found.bytes_written, found.values

    assert step("of q", "one") == step("one", "flat", "to p") == (100 + WEIGHTS, 100, 100)
    assert step("one", "to p", "of p") == (100 + WEIGHTS, 100, 100)
    assert step("to p", "of p", "two") == (100 + WEIGHTS, 400, 100)
    assert step("two", "relu", "sum") == (100 + 100 + WEIGHTS, 400, 100)
