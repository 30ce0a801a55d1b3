"""Declaring networks: chained, shared, nested; and everything that can be wrong with them, told
at once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from nnpipe import layers as nn
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph import shape_inference
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.weights import find_weight_problems, initial_weights, list_variables
from nnpipe.layers.problems import CODES, NetworkProblem
from nnpipe.layers.vocabulary.initialisers import GlorotUniform, HeNormal
from nnpipe.layers.vocabulary.regularisers import L2


def digits() -> nn.NetworkGraph:
    x = nn.Input((28, 28, 1), name="image")
    y = nn.MaxPool2d(nn.Conv2d(x, 16, 5, activation="relu"), 2)
    return nn.network(x, nn.Dense(nn.Flatten(y), 10, activation="softmax", name="class"), "digits")


def codes(graph: nn.NetworkGraph) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in graph.problems()]


def test_a_network_is_declared_without_counting_shapes() -> None:
    graph = digits()
    assert graph.problems() == ()
    assert list(graph.layers) == ["image", "conv2d", "max_pool2d", "flatten", "class"]
    shapes = infer(graph).shapes
    assert shapes[nn.Ref("max_pool2d")] == (None, 12, 12, 16)
    assert shapes[nn.Ref("class")] == (None, 10)
    assert {name: v.shape for name, v in list_variables(graph).items()} == {
        "conv2d/kernel": (5, 5, 1, 16),
        "conv2d/bias": (16,),
        "class/kernel": (2304, 10),
        "class/bias": (10,),
    }


def test_layers_are_frozen_and_equal_by_their_arguments() -> None:
    x, y = nn.Input((4,)), nn.Input((5,))
    assert nn.Dense(x, 3) == nn.Dense(y, 3) != nn.Dense(x, 4)
    assert digits() == digits()
    with pytest.raises(dataclasses.FrozenInstanceError):
        nn.Dense(x, 3).units = 4  # type: ignore[misc]


def test_short_forms_are_brought_into_one() -> None:
    layer = nn.Conv2d(
        (), 4, 3, kernel_initializer="he_normal", kernel_regularizer="L2", activation=None
    )
    assert (layer.kernel_size, layer.strides) == ((3, 3), (1, 1))
    assert layer.kernel_initializer == HeNormal()
    assert layer.kernel_regularizer == L2()
    assert nn.ZeroPad2d((), 1).padding == ((1, 1), (1, 1))
    assert nn.MaxPool1d((), 3).strides == (3,)
    assert nn.Dense((), 3).kernel_initializer == GlorotUniform()


def test_a_layer_is_shared_with_its_weights() -> None:
    a, b = nn.Input((4,), name="a"), nn.Input((4,), name="b")
    left = nn.Dense(a, 3, name="both")
    graph = nn.network([a, b], nn.Concatenate([left, left.on(b)]))
    assert [len(entry.uses) for entry in graph.entries if entry.layer.name == "both"] == [2]
    assert set(list_variables(graph)) == {"both/kernel", "both/bias"}
    assert graph.problems() == ()


def test_order_and_repetition_of_inputs_and_outputs_are_kept() -> None:
    a, b = nn.Input((4,), name="a"), nn.Input((4,), name="b")
    both = nn.Subtract([b, a])
    graph = nn.network([b, a], [both, a, both])
    assert [ref.layer for ref in graph.inputs] == ["b", "a"]
    assert [ref.layer for ref in graph.outputs] == ["subtract", "a", "subtract"]


def test_names_that_are_made_up_avoid_those_that_are_given() -> None:
    x = nn.Input((4,))
    y = nn.Dense(nn.Dense(nn.Dense(x, 3), 3, name="dense_1"), 3)
    assert list(nn.network(x, y).layers) == ["input", "dense", "dense_1", "dense_2"]


def test_outputs_of_a_layer_are_taken_by_number() -> None:
    x = nn.Input((5, 3))
    memory = nn.LSTM(x, 4, return_state=True)
    graph = nn.network(x, [memory[0], memory[2]])
    assert graph.outputs == (nn.Ref("lstm"), nn.Ref("lstm", 0, 2))


def test_a_long_chain_needs_no_deep_stack() -> None:
    x: Any = nn.Input((4,))
    y = x
    for _ in range(3000):
        y = nn.Identity(y)
    graph = nn.network(x, y)
    assert len(graph.entries) == 3001
    assert graph.problems() == ()


def test_a_network_within_a_network_has_its_own_weights() -> None:
    x = nn.Input((4,), name="x")
    inner = nn.network(x, nn.Dense(x, 4, name="d"))
    y = nn.Submodel(x, inner, name="one")
    graph = nn.network(x, nn.Submodel(y.on(y), inner, name="two"))
    assert sorted(list_variables(graph)) == [
        "one/d/bias",
        "one/d/kernel",
        "two/d/bias",
        "two/d/kernel",
    ]


# -- problems -------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once() -> None:
    x = nn.Input((28, 28, 1), name="x")
    a = nn.Conv2d(x, 0, (3, 3, 3), padding="half", name="a")
    b = nn.Conv2d(x, 8, 40, name="b")
    c = nn.Dense(x, "many", kernel_regularizer=3, name="c")  # type: ignore[arg-type]
    d = nn.Dense(x, 2, "rleu", name="d")
    graph = nn.network(x, [a, b, c, d, nn.Dense(a, 3)])
    assert codes(graph) == [
        ("argument", "a.filters"),
        ("argument", "a.kernel_size"),
        ("argument", "a.padding"),
        ("argument", "c.units"),
        ("argument", "c.kernel_regularizer"),
        ("unknown-object", "d.activation"),
        ("shape", "b"),
    ]
    with pytest.raises(ConfigError, match=r"a\.filters.*a\.padding.*c\.units.*b: Conv2d"):
        list_variables(graph)


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda x: nn.Add(x), "arity", "takes 2 or more inputs, not 1"),
        (lambda x: nn.Add([x, nn.Dense(x, 5)]), "shape", "cannot merge"),
        (lambda x: nn.Conv2d(x, 3, 3), "shape", "takes 4 axes"),
        (lambda x: nn.Reshape(x, (3, 2)), "shape", r"cannot give \(4,\) the shape \(3, 2\)"),
        (lambda x: nn.BatchNorm(x, axis=3), "shape", "has the axis 3"),
        (lambda x: nn.Concatenate([x, nn.RepeatVector(x, 2)]), "shape", "cannot join"),
        (lambda x: nn.Dense(x, 3)[1], "reference", "names output 1 of dense, which has fewer"),
        (
            lambda x: nn.Add([nn.Dense(x, 4, name="a"), nn.Dense(x, 4, name="a")]),
            "name",
            "2 layers have this name",
        ),
        (lambda x: nn.Add([x, nn.Input((4,), name="y")]), "reference", "is not among the inputs"),
        (lambda x: nn.Unknown(x, name="odd"), "unknown-layer", "not in the vocabulary"),
    ],
)
def test_each_problem_is_named(make: Any, code: str, words: str) -> None:
    x = nn.Input((4,), name="x")
    found = nn.network(x, make(x)).problems()
    assert code in [problem.code for problem in found]
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(" | ".join(map(str, found)))


def test_a_layer_shared_by_what_needs_other_weights_is_a_problem() -> None:
    x, y = nn.Input((4,), name="x"), nn.Input((5,), name="y")
    first = nn.Dense(x, 3, name="d")
    assert codes(nn.network([x, y], [first, first.on(y)])) == [("shared-shape", "d")]


def test_a_circle_is_told_and_hides_nothing() -> None:
    good = digits()
    entries = list(good.entries)
    entries[1] = dataclasses.replace(entries[1], uses=(nn.Use((nn.Ref("class"),)),))
    entries[2] = dataclasses.replace(entries[2], layer=entries[2].layer.alone(pool_size=0))
    found = codes(dataclasses.replace(good, entries=tuple(entries)))
    assert [code for code, _ in found] == ["argument", "cycle"]


def test_references_to_nothing_are_told() -> None:
    good = digits()
    bad = dataclasses.replace(good, outputs=(nn.Ref("nobody"), nn.Ref("class", 3)), inputs=())
    assert codes(bad) == [
        ("reference", "outputs"),
        ("reference", "outputs"),
        ("reference", "image"),
    ]


def test_a_problem_has_a_known_code() -> None:
    with pytest.raises(ValueError, match="no such code"):
        NetworkProblem("fancy", "", "")
    assert all(text and text[0].islower() for text in CODES.values())


# -- weights --------------------------------------------------------------------------------------


def test_first_weights_depend_on_seed_and_name_alone() -> None:
    one, again, other = (
        initial_weights(digits(), 1),
        initial_weights(digits(), 1),
        initial_weights(digits(), 2),
    )
    assert {v.dtype for v in one.values()} == {np.dtype("float32")}
    for name, value in one.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.array_equal(one["conv2d/kernel"], other["conv2d/kernel"])
    x = nn.Input((28, 28, 1), name="image")
    y = nn.MaxPool2d(nn.Conv2d(x, 16, 5, activation="relu"), 2)
    wider = initial_weights(
        nn.network(x, nn.Dense(nn.Dense(nn.Flatten(y), 7), 10, name="class")), 1
    )
    np.testing.assert_array_equal(wider["conv2d/kernel"], one["conv2d/kernel"])


def test_an_initialiser_that_cannot_fill_its_weight_is_told() -> None:
    x = nn.Input((4,))
    graph = nn.network(
        x, nn.Dense(x, 3, kernel_initializer="orthogonal", bias_initializer="identity", name="d")
    )
    with pytest.raises(ConfigError, match=r"d/bias: Identity cannot fill the shape \(3,\)"):
        initial_weights(graph)


def test_weights_that_do_not_fit_are_told_each() -> None:
    graph = digits()
    weights = initial_weights(graph)
    del weights["class/bias"]
    weights |= {"conv2d/bias": np.zeros(3, "float32"), "more": np.zeros(1)}
    assert [
        (p.path, p.message.partition(",")[0])
        for p in find_weight_problems(list_variables(graph), weights)
    ] == [
        ("conv2d/bias", "has the shape (3"),
        ("class/bias", "is missing"),
        ("more", "is not in the network"),
    ]


def test_what_no_output_needs_stays_out_of_a_network() -> None:
    a, b = nn.Input((4,), name="a"), nn.Input((4,), name="b")
    shared = nn.Dense(nn.Dense(a, 4, name="lost"), 3, name="shared")
    graph = nn.network(b, shared.on(b))
    assert graph.problems() == ()
    assert list(graph.layers) == ["b", "shared"]
    assert graph.outputs == (nn.Ref("shared"),)


def test_what_no_output_needs_is_told_of_a_graph_made_otherwise() -> None:
    a = nn.Input((4,), name="a")
    graph = nn.network(a, nn.Dense(a, 2, name="used"))
    lost = nn.LayerEntry(nn.Dense((), 3, name="lost"), (nn.Use((nn.Ref("a"),)),))
    used = graph.entries[1]
    twice = nn.LayerEntry(used.layer, (*used.uses, nn.Use((nn.Ref("a"),))))
    assert codes(dataclasses.replace(graph, entries=(graph.entries[0], twice, lost))) == [
        ("unused", "used"),
        ("unused", "lost"),
    ]


def test_networks_within_networks_are_looked_at_a_few_times_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = shape_inference.infer, []

    def counting(graph: nn.NetworkGraph) -> shape_inference.InferredShapes:
        calls.append(graph.name)
        return real(graph)

    monkeypatch.setattr(shape_inference, "infer", counting)
    x = nn.Input((3,), name="x")
    graph = nn.network(x, nn.Dense(x, 3), "n0")
    for depth in range(1, 12):
        graph = nn.network(x, nn.Submodel(x, graph, name=f"n{depth}"), "whole")
    assert graph.problems() == ()
    assert len(calls) < 4 * 12
