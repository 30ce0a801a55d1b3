"""The contract of layers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.discoverable import Discoverable
from nnpipe.layers.catalogue import find_layer, get_layer_class_name
from nnpipe.layers.description.from_description import from_description, to_description
from nnpipe.layers.graph.graph import NetworkGraph, network
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.weights import initial_weights, list_variables
from nnpipe.layers.keras.from_config import from_keras
from nnpipe.layers.keras.open_file import open_keras
from nnpipe.layers.keras.read_file import read_keras
from nnpipe.layers.keras.to_config import network_config, write_keras
from nnpipe.layers.keras.to_keras import keras_weights, to_keras
from nnpipe.layers.torch.to_torch import find_backend_problems, to_torch, torch_weights
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.testing.discoverable import DiscoverableContract


class LayerContract(DiscoverableContract):
    """What every layer must do; subclass it and define two fixtures.

    ``layer``
        The layer without inputs: ``Swish((), beta=2.0)``.  Use arguments that differ from their
        defaults, and initialisers other than zeros.
    ``shapes``
        The shape of each input without the axis of samples: ``[(4,)]``.

    Attributes
    ----------
    dtype
        The element type of the inputs; integers are below 9.
    tolerance
        The greatest difference between PyTorch and Keras, if both have the layer.
    """

    dtype: str = "float32"
    tolerance: float = 1e-5

    @pytest.fixture
    def layer(self) -> Layer:
        raise NotImplementedError("a subclass of LayerContract gives the fixture `layer`")

    @pytest.fixture
    def shapes(self) -> Sequence[tuple[int, ...]]:
        raise NotImplementedError("a subclass of LayerContract gives the fixture `shapes`")

    @pytest.fixture
    def graph(self, layer: Layer, shapes: Sequence[tuple[int, ...]]) -> NetworkGraph:
        inputs = [Input(shape, name=f"in{i}", dtype=self.dtype) for i, shape in enumerate(shapes)]
        return network(
            inputs,
            dataclasses.replace(layer, inputs=inputs if len(inputs) > 1 else inputs[0]),
            "example",
        )

    @pytest.fixture
    def batch(self, graph: NetworkGraph) -> list[np.ndarray]:
        return create_network_batch(graph)

    @pytest.fixture
    def discovered(self, layer: Layer) -> type[Discoverable]:
        return type(layer)

    # -- what it says of itself -----------------------------------------------------------------

    def test_its_arguments_never_change(self, layer: Layer) -> None:
        for row in field_table.table(type(layer)):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(layer, row.name, getattr(layer, row.name))

    def test_equal_arguments_make_equal_layers(self, layer: Layer) -> None:
        twin = layer.alone()
        assert twin is not layer
        assert twin == layer
        assert hash(twin) == hash(layer)

    def test_it_is_found_by_what_descriptions_call_it(self, layer: Layer) -> None:
        assert find_layer(get_layer_class_name(layer)) is type(layer)

    def test_nothing_is_wrong_with_it(self, layer: Layer, graph: NetworkGraph) -> None:
        assert list(layer.faults()) == []
        assert graph.problems() == ()
        assert any(type(part) is type(layer) for part in graph.layers.values())

    def test_it_survives_a_description(self, graph: NetworkGraph) -> None:
        read = from_description(json.loads(json.dumps(to_description(graph), allow_nan=False)))
        assert read.problems == ()
        assert read.graph == graph

    def test_a_wrong_argument_is_a_problem_that_names_it(
        self, layer: Layer, graph: NetworkGraph
    ) -> None:
        described = to_description(graph)
        place = next(
            i
            for i, part in enumerate(described["layers"])
            if part["class"] == get_layer_class_name(layer)
        )
        for name in ("no_such_argument", *(row.name for row in field_table.table(type(layer)))):
            layers = [dict(part) for part in described["layers"]]
            layers[place][name] = {"not": "a value"}
            problems = from_description({**described, "layers": layers}).problems
            assert any(name in str(problem) for problem in problems), name
            assert all("\n" not in str(problem) for problem in problems)

    def test_a_wrong_number_of_inputs_is_told(self, layer: Layer, graph: NetworkGraph) -> None:
        inputs = [graph.layers[ref.layer] for ref in graph.inputs]
        least, most = layer.takes
        count = max(least - 1, 0) if most is None else most + 1
        if least <= count and (most is None or count <= most):
            pytest.skip("takes any number of inputs")
        given = tuple((inputs * (count + 1))[:count])
        problems = network(inputs, dataclasses.replace(layer, inputs=given)).problems()
        assert [problem.code for problem in problems] == ["arity"]

    # -- what it computes -----------------------------------------------------------------------

    def test_equal_seeds_draw_equal_weights(self, graph: NetworkGraph) -> None:
        one, two = initial_weights(graph, 5), initial_weights(graph, 5)
        assert list(one) == list(two)
        for name, array in one.items():
            np.testing.assert_array_equal(array, two[name])

    def test_pytorch_computes_the_shapes_and_has_the_weights_that_it_says(
        self, graph: NetworkGraph, batch: list[np.ndarray]
    ) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        if find_backend_problems(graph, "torch"):
            pytest.skip("PyTorch cannot compute it")
        weights = initial_weights(graph)
        module = to_torch(graph, weights).eval()
        with torch.no_grad():
            found = module(*map(torch.from_numpy, batch)).numpy()
        assert infer(graph).shapes[graph.outputs[0]][1:] == found.shape[1:]
        assert np.isfinite(found).all()
        assert np.ptp(found) > 0 or found.size == 0, "an output of equal numbers shows nothing"
        _check_weights(torch_weights(module), weights)

    def test_pytorch_and_keras_agree(self, graph: NetworkGraph, batch: list[np.ndarray]) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        pytest.importorskip("keras", reason="Keras is not installed")
        if find_backend_problems(graph, "torch") or find_backend_problems(graph, "keras"):
            pytest.skip("only one of the two can compute it")
        weights = initial_weights(graph)
        in_torch, in_keras = to_torch(graph, weights).eval(), to_keras(graph, weights)
        with torch.no_grad():
            mine = in_torch(*map(torch.from_numpy, batch)).numpy()
        its = np.asarray(in_keras(batch if len(batch) > 1 else batch[0], training=False))
        assert mine.shape[1:] == its.shape[1:] == tuple(in_keras.outputs[0].shape[1:])
        np.testing.assert_allclose(mine, its, rtol=self.tolerance, atol=self.tolerance)
        _check_weights(keras_weights(in_keras, graph), weights)

    def test_what_is_written_for_keras_is_read_again(self, graph: NetworkGraph) -> None:
        if find_backend_problems(graph, "keras"):
            pytest.skip("Keras has no such layer")
        parsed = from_keras(network_config(graph))
        assert parsed.problems == ()
        assert parsed.graph == graph

    def test_a_keras_file_of_it_is_read_again(
        self, layer: Layer, graph: NetworkGraph, batch: list[np.ndarray], tmp_path: Path
    ) -> None:
        if not layer.has_keras_hook():
            pytest.skip("Keras has its own layer, or none")
        pytest.importorskip("h5py", reason="h5py is not installed")
        weights, path = initial_weights(graph), tmp_path / "example.keras"
        write_keras(path, graph, weights)
        reading = read_keras(path)
        assert reading.problems == ()
        assert reading.graph == graph
        _check_weights(dict(reading.weights), weights)
        pytest.importorskip("keras", reason="Keras is not installed")
        given = batch if len(batch) > 1 else batch[0]
        written, made = open_keras(path), to_keras(graph, weights)
        np.testing.assert_array_equal(written(given, training=False), made(given, training=False))
        made.save(path)
        _check_weights(dict(read_keras(path).weights), weights)

    def test_training_in_keras_changes_the_weights_that_are_trained(
        self, layer: Layer, graph: NetworkGraph, batch: list[np.ndarray]
    ) -> None:
        pytest.importorskip("keras", reason="Keras is not installed")
        if not layer.has_keras_hook():
            pytest.skip("Keras has its own layer, or none")
        weights, model = initial_weights(graph), to_keras(graph)
        given = batch if len(batch) > 1 else batch[0]
        model.compile("sgd", "mse")
        if model.trainable_weights:
            model.train_on_batch(given, np.asarray(model(given)) + 1)
        for name, variable in list_variables(graph).items():
            still = np.array_equal(keras_weights(model, graph)[name], weights[name])
            assert still != (variable.trainable and layer.trainable), name

    def test_training_runs_backwards_through_it(
        self, graph: NetworkGraph, batch: list[np.ndarray]
    ) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        if find_backend_problems(graph, "torch"):
            pytest.skip("PyTorch cannot compute it")
        module = to_torch(graph).train()
        inputs = [
            torch.from_numpy(value).requires_grad_(value.dtype == np.float32) for value in batch
        ]
        (module(*inputs).square().sum() + module.penalty()).backward()
        assert [
            name for name, parameter in module.named_parameters() if parameter.grad is None
        ] == []
        module.constrain()


def create_network_batch(graph: NetworkGraph, samples: int = 3) -> list[np.ndarray]:
    """Return random inputs of a network, ``(samples, ...)`` each; free axes have 5 elements,
    integers are below 9.
    """
    rng = np.random.default_rng(7)
    found = []
    for ref in graph.inputs:
        given: Any = graph.layers[ref.layer]
        values = rng.normal(size=(samples, *(extent or 5 for extent in given.shape)))
        found.append(
            (np.abs(values * 4) % 9 if given.dtype.startswith("int") else values).astype(
                given.dtype
            )
        )
    return found


def _check_weights(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
