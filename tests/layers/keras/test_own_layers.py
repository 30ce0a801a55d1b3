"""Layers that Keras lacks are computed there by their hook, with the weights that PyTorch has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs
from keras_copies import changed_copy
from tests.layers.keras.slopes import Slopes

from nnpipe import layers as nn
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.layers import open_keras, read_keras, to_keras, to_torch, write_keras
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.to_keras import keras_layer
from nnpipe.layers.vocabulary.initialisers import Constant, Initialiser
from nnpipe.layers.vocabulary.layer import KerasParts, Layer, LayerVariable, Shape, TorchParts
from nnpipe.testing.layer import LayerContract

needs("tensorflow")
torch = ImportedWhenUsed("torch")


class Parted(Layer):
    """Return the mean of two tensors, and how they differ; twice as much in training."""

    takes = (2, 2)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return shapes

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, a, b: ((a + b) / 2, a - b))

    def _build_keras(self, *shapes: Shape) -> KerasParts:
        return KerasParts(lambda layer, a, b: ((a + b) * (1 if layer.training else 0.5), a - b))


@pytest.mark.slow
class TestSlopes(LayerContract):
    @pytest.fixture
    def layer(self) -> Layer:
        return Slopes((), most=2.0)

    @pytest.fixture
    def shapes(self) -> Sequence[tuple[int, ...]]:
        return [(3, 4)]


def both() -> nn.NetworkGraph:
    x = nn.Input((4,), name="x")
    slopes = Slopes(nn.Dense(x, 3), name="slopes")
    parted = Parted([slopes, slopes.on(nn.Dense(x, 3, name="other"))], name="parted")
    return nn.network(x, [nn.Dense(parted[0], 2), parted[1]], "both")


def test_shared_layers_with_several_inputs_and_outputs_agree_and_are_read_again(
    tmp_path: Path,
) -> None:
    graph, x = both(), np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    weights = initial_weights(graph)
    model = to_keras(graph, weights)
    with torch.no_grad():
        expected = to_torch(graph, weights).eval()(torch.from_numpy(x))
    write_keras(tmp_path / "both.keras", graph, weights)
    assert read_keras(tmp_path / "both.keras").graph == graph
    for built in (model, open_keras(tmp_path / "both.keras")):
        for mine, its in zip(expected, built(x, training=False), strict=True):
            np.testing.assert_allclose(mine.numpy(), np.asarray(its), atol=1e-5)
    assert len(model.losses) == 1
    np.testing.assert_allclose(
        model.losses[0], 0.5 * np.square(weights["slopes/slope"]).sum(), rtol=1e-5
    )
    assert not np.allclose(model(x, training=True)[0], model(x, training=False)[0])
    assert model.get_layer("parted").get_config()["trainable"] is True


def renamed(path: Path, name: str, **config: Any) -> Path:
    """Write a copy of a file in which the layer is another class, or has further arguments."""

    def change(layers: list[dict[str, Any]]) -> None:
        layers[1]["registered_name"] = f"nnpipe>{name}"
        layers[1]["config"] |= config

    return changed_copy(path, change)


def test_no_name_in_a_file_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_here.py").write_text(
        "from tests.layers.keras.slopes import Slopes as Planted", "utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    graph = nn.network(x := nn.Input((4,)), Slopes(x))
    write_keras(tmp_path / "mine.keras", graph, initial_weights(graph))
    for name in (
        "planted_here.Planted",
        "nnpipe.layers.catalogue.find_layer",
        "nnpipe.layers.vocabulary.dense.Dense",
    ):
        other = renamed(tmp_path / "mine.keras", name)
        (problem, *_) = read_keras(other).problems
        assert (problem.code, problem.path) == ("unknown-layer", "config.layers[1]")
        assert f"{name} is somebody's own layer" in problem.message
        with pytest.raises(ArtifactError, match="Slopes"):
            open_keras(other)
    assert "planted_here" not in sys.modules


def test_what_is_wrong_with_its_arguments_in_a_file_is_told(tmp_path: Path) -> None:
    graph = nn.network(x := nn.Input((4,)), Slopes(x))
    write_keras(tmp_path / "mine.keras", graph, initial_weights(graph))
    name = Slopes.get_dotted_path()
    assert [p.path for p in read_keras(renamed(tmp_path / "mine.keras", name, least=1)).problems][
        :1
    ] == ["config.layers[1].config.least"]
    assert (
        read_keras(renamed(tmp_path / "mine.keras", name, most="much")).problems[0].code
        == "argument"
    )


class Backwards(Slopes):
    """Declares its weights in an order that Keras does not keep."""

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return super()._describe_variables(*shapes)[::-1]


def test_weights_that_are_not_trained_come_last() -> None:
    with pytest.raises(ConfigError, match="must declare the weights that are trained first"):
        to_keras(nn.network(x := nn.Input((4,)), Backwards(x)))


def test_a_layer_alone_has_the_initial_weights_that_it_declares() -> None:
    class Filled(Slopes):
        """Starts from a number."""

        def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
            value: Initialiser = Constant(3.0)
            return (
                LayerVariable("slope", (2,), value),
                LayerVariable("offset", (2,), value, trainable=False),
            )

    built = keras_layer(Filled((), name="filled"))
    np.testing.assert_array_equal(built(np.ones((1, 2), np.float32)), [[6, 6]])
    assert [weight.name for weight in built.weights] == ["slope", "offset"]
