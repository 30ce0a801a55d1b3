"""Networks as YAML and JSON: read, written, and everything wrong told with its place."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples
from tests.layers.test_backends import CASES, Make, declared
from tests.layers.test_random_graphs import graphs

from nnpipe import layers as nn
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import parse_yaml
from nnpipe.layers.description.from_description import (
    from_description,
    read_description,
    to_description,
)
from nnpipe.layers.keras.from_config import from_keras
from nnpipe.layers.keras.to_config import network_config

SMALL = """
name: small
layers:
  - {class: Input, shape: [28, 28, 1], name: image}
  - {class: Conv2d, filters: 16, kernel_size: 5, strides: 2}
  - {class: ReLU}
  - {class: MaxPool2d}
  - {class: Flatten}
  - {class: Dense, units: 500, activation: relu, kernel_initializer: he_normal}
  - {class: Dense, units: 10}
  - {class: OutputClassification, target: label, name: digit}
"""
MANY = """
layers:
  - {class: Input, shape: [4], name: left}
  - {class: Input, shape: [4], name: right}
  - {class: Dense, units: 3, name: encode, calls: [{inputs: left}, {inputs: [right], training: false}]}
  - {class: Concatenate, inputs: [encode, encode@1]}
  - {class: Reshape, target_shape: [2, 3]}
  - {class: LSTM, units: 2, return_state: true, name: memory}
  - {class: Add, inputs: ["memory[1]", "memory[2]"], name: states}
  - class: Submodel
    name: inner
    inputs: states
    graph:
      layers:
        - {class: Input, shape: [2]}
        - {class: RepeatVector, n: 2}
        - {class: TimeDistributed, layer: {class: Dense, units: 2}}
outputs: [inner, memory]
"""


def problems(text: str) -> list[tuple[str, str]]:
    return [
        (problem.code, problem.path)
        for problem in from_description(parse_yaml(text, "test")).problems
    ]


def test_a_network_is_written_as_it_is_thought_of() -> None:
    parsed = from_description(parse_yaml(SMALL, "test"))
    assert parsed.problems == ()
    x = nn.Input((28, 28, 1), name="image")
    y = nn.Flatten(nn.MaxPool2d(nn.ReLU(nn.Conv2d(x, 16, 5, 2))))
    y = nn.Dense(nn.Dense(y, 500, "relu", kernel_initializer="he_normal"), 10)
    assert parsed.graph == nn.network(x, nn.OutputClassification(y, "label", name="digit"), "small")


@pytest.mark.parametrize(("cls", "make", "shapes"), CASES)
def test_every_layer_is_written_and_read_again(
    cls: type[nn.Layer], make: Make, shapes: Sequence[tuple[int, ...]]
) -> None:
    graph = declared(cls, make, shapes)
    parsed = from_description(json.loads(json.dumps(to_description(graph))))
    assert parsed.problems == ()
    assert parsed.graph == graph


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_any_network_is_written_and_read_again(graph: nn.NetworkGraph) -> None:
    parsed = from_description(json.loads(json.dumps(to_description(graph))))
    assert parsed.problems == ()
    assert parsed.graph == graph


def test_what_is_left_out_has_its_default() -> None:
    graph = from_description(parse_yaml(SMALL, "test")).graph
    assert graph is not None
    layers = to_description(graph)["layers"]
    assert layers[1] == {
        "class": "Conv2d",
        "name": "conv2d",
        "filters": 16,
        "kernel_size": [5, 5],
        "strides": [2, 2],
    }
    assert layers[3] == {"class": "MaxPool2d", "name": "max_pool2d", "strides": [2, 2]}
    assert layers[-1] == {"class": "OutputClassification", "name": "digit", "target": "label"}
    assert yaml.safe_load(yaml.safe_dump(to_description(graph))) == to_description(graph)


def test_places_tell_calls_and_outputs() -> None:
    parsed = from_description(parse_yaml(MANY, "test"))
    assert parsed.problems == ()
    assert parsed.graph is not None
    uses = {entry.layer.name: entry.uses for entry in parsed.graph.entries}
    assert uses["encode"] == (nn.Use((nn.Ref("left"),)), nn.Use((nn.Ref("right"),), False))
    assert uses["concatenate"] == (nn.Use((nn.Ref("encode"), nn.Ref("encode", 1))),)
    assert uses["states"] == (nn.Use((nn.Ref("memory", 0, 1), nn.Ref("memory", 0, 2))),)
    assert parsed.graph.outputs == (nn.Ref("inner"), nn.Ref("memory"))
    assert from_description(to_description(parsed.graph)) == parsed


def test_names_that_look_like_places_are_no_trouble() -> None:
    x = nn.Input((4,), name="a")
    graph = nn.network(
        x, [nn.Dense(x, 2, name="a[1]"), nn.Dense(nn.Dense(x, 2, name="b@1"), 3, name="[0]")]
    )
    parsed = from_description(json.loads(json.dumps(to_description(graph))))
    assert (parsed.graph, parsed.problems) == (graph, ())


def test_all_that_is_wrong_is_told_with_its_place() -> None:
    wrong = """
layers:
  - {class: Input, shape: [8, 8, 1], name: image}
  - {class: Conv2d, filters: 0, kernel_sizes: 3}
  - {class: Conv, filters: 3}
  - {units: 3}
  - {class: Dense, units: 3, inputs: nobody}
  - {class: MaxPool2d, pool_size: 9, inputs: image, training: perhaps}
  - {class: Dense, units: 3, inputs: [7]}
  - {class: Submodel, graph: {layers: [{class: Input, shape: [8, 8, 1]}, {class: Dense, unit: 3}]}, inputs: image}
  - 5
output: image
"""
    assert problems(wrong) == [
        ("unknown-argument", "output"),
        ("unknown-argument", "layers[1].kernel_sizes"),
        ("argument", "layers[1].kernel_size"),
        ("argument", "layers[1].filters"),
        ("unknown-layer", "layers[2]"),
        ("structure", "layers[3]"),
        ("unknown-argument", "layers[7].graph.layers[1].unit"),
        ("argument", "layers[7].graph.layers[1].units"),
        ("structure", "layers[8]"),
        ("argument", "layers[5].training"),
        ("structure", "layers[6].inputs[0]"),
        ("reference", "layers[4]"),
        ("arity", "layers[6]"),
        ("shape", "layers[5]"),
    ]


@pytest.mark.parametrize(
    "raw", [None, 3, [], {}, {"layers": 3}, {"layers": "Dense"}, {"name": "x"}]
)
def test_what_is_no_network_is_told(raw: Any) -> None:
    parsed = from_description(raw)
    assert parsed.graph is None
    assert [problem.code for problem in parsed.problems] == ["structure"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "class",
        "name",
        "units",
        "inputs",
        "calls",
        "graph",
        "shape",
        "activation",
        "training",
        "layers",
        "dtype",
        "raw",
        "kernel_initializer",
        "pool_size",
        "form",
        "target",
        "top",
    ]
)
KINDS = st.sampled_from(
    ["Input", "Dense", "Submodel", "Bidirectional", "LSTM", "Unknown", "MaxPool2d", "Softmax"]
)
LAYER = st.dictionaries(KEYS, JSON | KINDS, max_size=5).flatmap(
    lambda layer: KINDS.map(lambda kind: layer | {"class": kind})
)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(
        {"layers": st.lists(LAYER | JSON, max_size=4)}, optional={"outputs": JSON, "inputs": JSON}
    )
)
def test_nothing_that_is_read_raises(raw: Any) -> None:
    parsed = from_description(raw)
    if parsed.graph is not None and not parsed.problems:
        assert from_description(to_description(parsed.graph)).graph == parsed.graph


def test_what_json_cannot_hold_is_a_text() -> None:
    config = {1: datetime.date(2026, 1, 31), "a": 2}
    odd = {
        "class": "Dense",
        "units": 2,
        "kernel_initializer": {"class_name": "Foo", "config": config},
        3: 4,
    }
    parsed = from_description({"layers": [{"class": "Input", "shape": (3,), "name": "x"}, odd]})
    assert {(problem.code, problem.path) for problem in parsed.problems} == {
        ("unknown-argument", "layers[1].3"),
        ("unknown-object", "layers[1].kernel_initializer"),
    }


def test_lists_without_end_are_a_problem() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    raw = {"layers": [{"class": "Rescaling", "scale": deep}]}
    assert [problem.code for problem in from_description(raw).problems] == ["structure"]
    for _ in range(200):
        deep = {"layers": [{"class": "Submodel", "graph": deep}]}
    assert "structure" in [problem.code for problem in from_description(deep).problems]


def test_unknown_layers_of_keras_are_kept(tmp_path: Path) -> None:
    config = network_config(nn.network(x := nn.Input((4,), name="x"), nn.Dense(x, 3, name="d")))
    config["config"]["layers"][1] |= {"class_name": "Mystery", "module": "my.own"}
    graph = from_keras(config).graph
    assert graph is not None
    parsed = from_description(json.loads(json.dumps(to_description(graph))))
    assert parsed.graph == graph
    assert [problem.code for problem in parsed.problems] == []


def test_a_file_is_read_or_all_its_faults_are_one_error(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(SMALL)
    assert list(read_description(path).layers)[:2] == ["image", "conv2d"]
    path.write_text(SMALL.replace("units: 10", "unit: 10").replace("ReLU", "Dens"))
    with pytest.raises(ConfigError) as caught:
        read_description(path)
    assert str(caught.value).startswith(
        f"{path}: layers[2]: there is no layer 'Dens'; did you mean Dense?; layers[6].unit:"
    )
    with pytest.raises(ConfigError, match="no such file"):
        read_description(tmp_path / "none.yaml")


OWN = """
from nnpipe.layers import Layer
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.value_kinds import NumberKind


class Twofold(Layer):
    factor: float = row(NumberKind(), default=2.0)
"""


def test_a_layer_of_ones_own_is_named_by_its_dotted_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twofold_of_mine.py").write_text(OWN, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    text = "layers: [{class: Input, shape: [2]}, {class: twofold_of_mine.Twofold, factor: 3}]"
    parsed = from_description(parse_yaml(text, "test"))
    assert parsed.problems == ()
    assert parsed.graph is not None
    layer = parsed.graph.layers["twofold"]
    assert (type(layer).get_dotted_path(), layer.factor) == ("twofold_of_mine.Twofold", 3.0)
    # Another process finds the class by its path alone.
    assert to_description(parsed.graph)["layers"][1]["class"] == "twofold_of_mine.Twofold"
    assert from_description(to_description(parsed.graph)).graph == parsed.graph


def test_what_is_no_layer_of_ones_own_is_told_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_of_mine.py").write_text("raise ValueError('no GPU')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, cause in (
        ("nowhere_of_mine.Twofold", "start nnpipe in the folder that holds nowhere_of_mine.py"),
        ("broken_of_mine.Twofold", "ValueError: no GPU"),
        ("nnpipe.core.registry.find", "is not a Layer"),
        ("pathlib.Path", "is not a Layer"),
    ):
        read = from_description({"layers": [{"class": "Input", "shape": [2]}, {"class": name}]})
        (problem,) = read.problems
        assert (problem.code, problem.path) == ("unknown-layer", "layers[1]")
        assert cause in problem.message
