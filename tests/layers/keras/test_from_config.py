"""Configurations of all dialects, odd ones, and anything at all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe import layers as nn
from nnpipe.layers.keras.from_config import ParsedConfig, from_keras
from nnpipe.layers.keras.to_config import network_config
from nnpipe.layers.vocabulary.activations import HARD_SIGMOID_2, ActivationFunction


def layer(kind: str, name: str, nodes: Any = None, **config: Any) -> dict[str, Any]:
    made = {
        "class_name": kind,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
    }
    return made if nodes is None else made | {"name": name, "inbound_nodes": nodes}


def functional(*layers: Any, inputs: Any, outputs: Any, kind: str = "Functional") -> dict[str, Any]:
    config = {"name": "m", "layers": list(layers), "input_layers": inputs, "output_layers": outputs}
    return {"class_name": kind, "config": config}


A = layer("InputLayer", "a", [], batch_input_shape=[None, 4])
B = layer("InputLayer", "b", [], batch_input_shape=[None, 4])


def told(parsed: ParsedConfig) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in parsed.problems]


@pytest.mark.parametrize("kind", ["Model", "Functional"])
def test_calls_as_lists_are_read(kind: str) -> None:
    shared = layer("Dense", "d", [[["a", 0, 0, {}]], [["b", 0, 0, {}]]], units=3)
    joined = layer("Concatenate", "c", [[["d", 0, 0, {}], ["d", 1, 0, {}]]], axis=-1)
    parsed = from_keras(
        functional(
            A,
            B,
            shared,
            joined,
            inputs=[["a", 0, 0], ["b", 0, 0]],
            outputs=[["c", 0, 0]],
            kind=kind,
        )
    )
    a, b = nn.Input((4,), name="a"), nn.Input((4,), name="b")
    d = nn.Dense(a, 3, name="d")
    assert parsed.problems == ()
    assert parsed.graph == nn.network([a, b], nn.Concatenate([d, d.on(b)], name="c"), "m")


def test_tensors_by_name_and_training_are_read() -> None:
    q = layer("InputLayer", "q", [], batch_input_shape=[None, 5, 4])
    v = layer("InputLayer", "v", [], batch_input_shape=[None, 6, 4])
    call = [[["q", 0, 0, {"value": ["v", 0, 0], "training": False}]]]
    heads = layer("MultiHeadAttention", "h", call, num_heads=2, key_dim=3, query_shape=[None, 5, 4])
    parsed = from_keras(
        functional(q, v, heads, inputs=[["q", 0, 0], ["v", 0, 0]], outputs=[["h", 0, 0]])
    )
    assert parsed.problems == ()
    assert parsed.graph is not None
    assert parsed.graph.entries[2].uses == (nn.Use((nn.Ref("q"), nn.Ref("v")), False),)


def test_a_sequential_of_the_first_keras_is_a_mere_list() -> None:
    dense = layer("Dense", "d", units=3, batch_input_shape=[None, 4], activation="relu")
    parsed = from_keras({"class_name": "Sequential", "config": [dense]})
    assert parsed.problems == ()
    assert parsed.graph is not None
    assert parsed.graph.layers == {
        "d_input": nn.Input((4,), name="d_input"),
        "d": nn.Dense((), 3, "relu", name="d"),
    }


def test_a_sequential_that_does_not_say_what_it_takes_is_told() -> None:
    parsed = from_keras(
        {"class_name": "Sequential", "config": {"name": "m", "layers": [layer("Flatten", "f")]}}
    )
    assert ("no-input-shape", "config") in told(parsed)
    assert parsed.graph is not None


def test_older_keys_and_meanings_are_read() -> None:
    leaky = layer("LeakyReLU", "l", alpha=0.2)
    gru = layer("GRU", "g", units=2, recurrent_activation="hard_sigmoid", implementation=1)
    norm = layer("BatchNormalizationV1", "n", axis=[2], epsilon=0.01)
    first = layer("Reshape", "r", target_shape=[2, 2], batch_input_shape=[None, 4])
    parsed = from_keras(
        {"class_name": "Sequential", "config": {"name": "m", "layers": [first, norm, leaky, gru]}}
    )
    assert told(parsed) == [("changed-meaning", "config.layers[3].config.recurrent_activation")]
    assert parsed.graph is not None
    layers: dict[str, Any] = parsed.graph.layers
    assert layers["l"].negative_slope == 0.2
    assert layers["n"].axis == 2
    assert layers["g"].reset_after is False
    assert layers["g"].recurrent_activation == ActivationFunction(HARD_SIGMOID_2)


# -- problems -------------------------------------------------------------------------------------


def test_all_problems_are_told_with_their_places() -> None:
    model = functional(
        A,
        layer(
            "Dense",
            "d",
            [[["a", 0, 0, {}]]],
            units="many",
            kernel_initializer="mine",
            activation="strange",
        ),
        layer("Peculiar", "p", [[["a", 0, 0, {}]]], depth=3),
        layer("Dropout", "o", [[["nobody", 0, 0, {}]]], rate=2.0, colour="red"),
        layer("Flatten", "f", "what"),
        layer("Flatten", "g", [[["a", 0, 0, {}]]]),
        layer("Flatten", "g", [[7]]),
        inputs=[["a", 0, 0]],
        outputs=[["g", 0, 0], "g"],
    )
    parsed = from_keras(model)
    assert told(parsed) == [
        ("unknown-object", "config.layers[1].config.activation"),
        ("unknown-object", "config.layers[1].config.kernel_initializer"),
        ("argument", "config.layers[1].config.units"),
        ("unknown-layer", "config.layers[2]"),
        ("unknown-argument", "config.layers[3].config.colour"),
        ("structure", "config.layers[4].inbound_nodes"),
        ("structure", "config.layers[6].inbound_nodes[0]"),
        ("structure", "config.output_layers[1]"),
        ("name", "config.layers[6]"),
        ("reference", "config.layers[3]"),
        ("arity", "config.layers[6]"),
    ]


@pytest.mark.parametrize(
    "config",
    [None, 3, "x", [], {}, {"class_name": "Flatten"}, {"class_name": "Model", "config": 3}],
)
def test_what_is_no_model_is_told(config: Any) -> None:
    parsed = from_keras(config)
    assert parsed.graph is None
    assert [problem.code for problem in parsed.problems] == ["structure"]


def test_networks_without_end_are_told() -> None:
    model: Any = {"class_name": "Sequential", "config": {"name": "m", "layers": []}}
    for _ in range(2000):
        model = {"class_name": "Sequential", "config": {"name": "m", "layers": [model]}}
    parsed = from_keras(model)
    assert parsed.graph is None
    assert parsed.problems[-1].code == "damaged"


# -- what is not known ----------------------------------------------------------------------------


def test_an_unknown_layer_and_its_call_survive() -> None:
    tensor = {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 4], "keras_history": ["a", 0, 0]},
    }
    odd = {
        "module": "somebody",
        "class_name": "Peculiar",
        "registered_name": "somebody>Peculiar",
        "config": {"name": "p", "trainable": True, "depth": {"a": [1, None]}},
        "name": "p",
        "inbound_nodes": [{"args": [3, tensor], "kwargs": {"other": [tensor], "flag": True}}],
    }
    first = from_keras(functional(A, odd, inputs=["a", 0, 0], outputs=["p", 0, 0]))
    assert told(first) == [("unknown-layer", "config.layers[1]")]
    assert first.graph is not None
    emitted = network_config(first.graph)
    again = emitted["config"]["layers"][1]
    for key in ("module", "class_name", "registered_name", "config"):
        assert again[key] == odd[key]
    (call,) = again["inbound_nodes"]
    assert call["args"][0] == 3
    assert call["kwargs"]["flag"] is True
    assert call["kwargs"]["other"][0]["config"]["keras_history"] == ["a", 0, 0]
    assert from_keras(json.loads(json.dumps(emitted))).graph == first.graph


def test_a_known_layer_with_an_unknown_argument_is_not_computed() -> None:
    parsed = from_keras(
        functional(
            A,
            layer("Dense", "d", [[["a", 0, 0, {}]]], units=3, twist=0.5),
            inputs=["a", 0, 0],
            outputs=["d", 0, 0],
        )
    )
    assert told(parsed) == [("unknown-argument", "config.layers[1].config.twist")]
    assert parsed.graph is not None
    assert isinstance(parsed.graph.layers["d"], nn.Unknown)
    assert network_config(parsed.graph)["config"]["layers"][1]["config"]["twist"] == 0.5


def test_a_call_with_what_is_not_known_is_not_computed() -> None:
    call = [[["a", 0, 0, {"axis": 3}]]]
    parsed = from_keras(
        functional(A, layer("Flatten", "f", call), inputs=["a", 0, 0], outputs=["f", 0, 0])
    )
    assert told(parsed) == [("unknown-argument", "config.layers[1]")]


def test_somebody_else_s_class_of_a_known_name_is_not_taken_for_keras_s() -> None:
    dense = layer("Dense", "d", [[["a", 0, 0, {}]]], units=3) | {
        "module": "mine",
        "registered_name": "mine>Dense",
    }
    parsed = from_keras(functional(A, dense, inputs=["a", 0, 0], outputs=["d", 0, 0]))
    assert told(parsed) == [("unknown-layer", "config.layers[1]")]


# -- anything at all ------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats()
    | st.sampled_from(["", "a", "relu", "Dense"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["class_name", "config", "a"]), inner)
    ),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


def example() -> dict[str, Any]:
    a, b = nn.Input((5, 4), name="a"), nn.Input((5, 4), name="b")
    i = nn.Input((4,), name="i")
    inner = nn.network(i, nn.BatchNorm(nn.Dense(i, 2)))
    x = nn.Bidirectional(
        nn.Add([nn.Conv1d(a, 4, 3, padding="same"), b]), nn.LSTM((), 2, return_sequences=True)
    )
    y = nn.Submodel(nn.GlobalAvgPool1d(nn.Attention([x, x])), inner, name="inner")
    return network_config(nn.network([a, b], [y, nn.MaxPool1d(x)]))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_configuration_with_anything_in_it_raises_nothing(data: st.DataObject) -> None:
    config = copy.deepcopy(example())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([p for p in places(config) if p]))
        parent: Any = config
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = data.draw(JSON)
    parsed = from_keras(config)
    assert all(isinstance(problem.message, str) for problem in parsed.problems)
    if parsed.graph is not None and not parsed.problems:
        assert from_keras(network_config(parsed.graph)).graph == parsed.graph
