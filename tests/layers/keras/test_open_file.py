"""Keras files of any age: what Keras 3 refuses, or would compute otherwise, is built by our own
reader.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

from nnpipe.core.errors import ArtifactError
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning
from nnpipe.frameworks.keras_files import KerasRefusal, load_model
from nnpipe.layers.imports.network_files import read_network
from nnpipe.layers.keras.open_file import open_keras, open_keras_with_reason
from nnpipe.layers.keras.read_file import read_keras
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.testing.session import assert_one_line

needs("tensorflow")
keras = ImportedWhenUsed("keras")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")

Arrays = dict[str, list[tuple[str, np.ndarray]]]
RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.5, shape).astype("float32")


def layer(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, "trainable": True, **config}}


def chain(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "chain", "layers": list(layers)}}


def old_file(
    path: Path,
    config: dict[str, Any],
    weights: Arrays,
    version: str = "2.2.4",
    backend: str = "tensorflow",
) -> Path:
    """Write a file as Keras 1 and 2 did, with what they left of a training."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config).encode()
        loss = {"class_name": "Mine", "config": {"name": "mine"}}
        file.attrs["training_config"] = json.dumps(
            {"loss": loss, "optimizer_config": {"class_name": "Own"}}
        ).encode()
        if version:
            file.attrs["keras_version"] = version.encode()
            file.attrs["backend"] = backend.encode()
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for name, arrays in weights.items():
            inner = group.create_group(name)
            inner.attrs["weight_names"] = [weight.encode() for weight, _ in arrays]
            for weight, array in arrays:
                inner[weight] = array
        file.create_group("optimizer_weights")["Own/iterations:0"] = np.zeros((), "int64")
    return path


def outputs(path: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what Keras and PyTorch compute of a file's network."""
    reading = read_network(path)
    assert reading.graph is not None
    mine = to_torch(reading.graph, reading.weights).eval()(torch.from_numpy(x)).detach().numpy()
    return np.asarray(open_keras(path)(x, training=False)), mine


def expect(path: Path, x: np.ndarray, expected: np.ndarray) -> None:
    for found in outputs(path, x):
        np.testing.assert_allclose(found, expected, atol=2e-5)


# -- real files -----------------------------------------------------------------------------------


def test_every_real_file_runs_and_computes_what_our_own_reading_computes(shared_data: Path) -> None:
    files = sorted(
        [*(shared_data / "keras_files").glob("*.h5"), *(shared_data / "models").rglob("*.h5")]
    )
    assert len(files) == 24
    refused = 0
    for path in files:
        opened = open_keras_with_reason(path)
        refused += bool(opened.reason)
        reading = read_keras(path)
        assert reading.graph is not None
        shape = [2, *(extent or 4 for extent in opened.model.input_shape[1:])]
        x = np.random.default_rng(1).random(shape, np.float32)
        mine = to_torch(reading.graph, reading.weights).eval()(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(
            np.asarray(opened.model(x, training=False)), mine, atol=1e-5, err_msg=str(path)
        )
    assert refused == 23, "Keras 3 reads one of them"


def test_a_recorded_prediction_is_reproduced(shared_data: Path) -> None:
    folder = shared_data / "keras_files"
    for recorded in json.loads((folder / "predictions.json").read_text())["models"].values():
        (shape,) = recorded["input_shapes"]
        x = (np.arange(np.prod(shape)) % 17 / 17).reshape(shape).astype("float32")
        found = np.asarray(open_keras(folder / recorded["file"])(x, training=False))
        np.testing.assert_allclose(found, recorded["output"], atol=1e-5)


def test_a_line_says_who_read_the_file_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = old_file(tmp_path / "m.h5", *first_dense())
    with caplog.at_level(logging.WARNING, "nnpipe"):
        open_keras(path)
        open_keras(path)
    (record,) = caplog.records
    assert record.getMessage() == f"{path}: read by nnpipe's own reader: Keras 1.2.2 wrote it"


# -- Keras 1 --------------------------------------------------------------------------------------


def first_dense() -> tuple[dict[str, Any], Arrays, str]:
    config = chain(
        layer(
            "Dense",
            "d",
            output_dim=3,
            input_dim=4,
            init="glorot_uniform",
            activation="relu",
            bias=True,
            W_regularizer={"name": "WeightRegularizer", "l1": 0.0, "l2": 0.1},
            b_regularizer=None,
            W_constraint={"name": "MaxNorm", "m": 2},
            b_constraint=None,
            activity_regularizer=None,
            batch_input_shape=[None, 4],
            input_dtype="float32",
        ),
        layer("Dropout", "drop", p=0.5),
    )
    config["config"] = config["config"]["layers"]  # which was all that Keras 1 wrote
    return config, {"d": [("d_W", numbers(4, 3)), ("d_b", numbers(3))], "drop": []}, "1.2.2"


def test_names_of_keras_1_are_read(tmp_path: Path) -> None:
    config, weights, version = first_dense()
    (_, kernel), (_, bias) = weights["d"]
    x = numbers(5, 4)
    expect(
        old_file(tmp_path / "m.h5", config, weights, version), x, np.maximum(x @ kernel + bias, 0)
    )


@pytest.mark.parametrize("backend", ["tensorflow", "theano"])
@pytest.mark.parametrize("version", ["1.2.2", ""])
def test_a_convolution_of_keras_1_with_channels_first(
    tmp_path: Path, backend: str, version: str
) -> None:
    config = chain(
        layer(
            "Convolution2D",
            "c",
            nb_filter=2,
            nb_row=3,
            nb_col=2,
            border_mode="valid",
            subsample=[1, 1],
            dim_ordering="th",
            init="he_normal",
            activation="linear",
            bias=True,
            batch_input_shape=[None, 3, 6, 5],
        ),
        layer(
            "MaxPooling2D",
            "p",
            pool_size=[2, 2],
            strides=[2, 2],
            border_mode="valid",
            dim_ordering="th",
        ),
        layer("Flatten", "f"),
    )
    kernel, bias, x = numbers(2, 3, 3, 2), numbers(2), numbers(2, 3, 6, 5)
    path = old_file(
        tmp_path / "m.h5", config, {"c": [("c_W", kernel), ("c_b", bias)]}, version, backend
    )
    turned = version and backend == "theano"  # a file that does not say is taken as Keras 2 took it
    used = torch.from_numpy(kernel[:, :, ::-1, ::-1].copy() if turned else kernel)
    y = torch.nn.functional.conv2d(torch.from_numpy(x), used, torch.from_numpy(bias))
    expect(path, x, torch.nn.functional.max_pool2d(y, 2).flatten(1).numpy())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(0.2 * x + 0.5, 0, 1))


def test_gates_of_keras_1_that_lie_apart(tmp_path: Path) -> None:
    config = chain(
        layer(
            "LSTM",
            "l",
            output_dim=3,
            input_dim=2,
            input_length=4,
            init="glorot_uniform",
            inner_init="orthogonal",
            forget_bias_init="one",
            activation="tanh",
            inner_activation="hard_sigmoid",
            return_sequences=False,
            go_backwards=False,
            stateful=False,
            unroll=False,
            consume_less="cpu",
            dropout_W=0.1,
            dropout_U=0.0,
            W_regularizer=None,
            U_regularizer=None,
            b_regularizer=None,
            batch_input_shape=[None, 4, 2],
        ),
    )
    parts = {gate: (numbers(2, 3), numbers(3, 3), numbers(3)) for gate in "icfo"}
    arrays = [
        (f"l_{kind}_{gate}", value)
        for gate in "icfo"
        for kind, value in zip("WUb", parts[gate], strict=True)
    ]
    x = numbers(5, 4, 2)
    h = c = np.zeros((5, 3), "float32")
    for step in range(4):
        z = {gate: x[:, step] @ w + h @ u + b for gate, (w, u, b) in parts.items()}
        c = sigmoid(z["f"]) * c + sigmoid(z["i"]) * np.tanh(z["c"])
        h = sigmoid(z["o"]) * np.tanh(c)
    expect(old_file(tmp_path / "m.h5", config, {"l": arrays}, "1.2.2"), x, h)


def test_what_keras_1_merged(tmp_path: Path) -> None:
    inputs = [
        {
            **layer("InputLayer", name, batch_input_shape=[None, 3], input_dtype="float32"),
            "name": name,
            "inbound_nodes": [],
        }
        for name in ("a", "b")
    ]
    merge = layer(
        "Merge",
        "m",
        mode="concat",
        mode_type="raw",
        concat_axis=-1,
        dot_axes=-1,
        output_shape=None,
        output_shape_type="raw",
        output_mask=None,
        output_mask_type="raw",
        arguments={},
    )
    nodes = [[["a", 0, 0], ["b", 0, 0]]]
    config = {
        "class_name": "Model",
        "config": {
            "name": "two",
            "layers": [*inputs, {**merge, "name": "m", "inbound_nodes": nodes}],
            "input_layers": [["a", 0, 0], ["b", 0, 0]],
            "output_layers": [["m", 0, 0]],
        },
    }
    path = old_file(tmp_path / "m.h5", config, {}, "1.2.2")
    a, b = numbers(2, 3), numbers(2, 3)
    np.testing.assert_array_equal(np.asarray(open_keras(path)([a, b])), np.concatenate([a, b], 1))


# -- Keras 2 --------------------------------------------------------------------------------------


def test_windows_of_theano_are_turned_round(tmp_path: Path) -> None:
    config = chain(
        layer(
            "Conv2D",
            "c",
            filters=2,
            kernel_size=[3, 2],
            padding="valid",
            strides=[1, 1],
            data_format="channels_last",
            activation="linear",
            use_bias=False,
            dilation_rate=[1, 1],
            batch_input_shape=[None, 6, 5, 3],
            dtype="float32",
        )
    )
    kernel, x = numbers(3, 2, 3, 2), numbers(2, 6, 5, 3)
    path = old_file(tmp_path / "m.h5", config, {"c": [("c/kernel:0", kernel)]}, "2.0.8", "theano")
    used = torch.from_numpy(kernel[::-1, ::-1].copy()).permute(3, 2, 0, 1)
    y = torch.nn.functional.conv2d(torch.from_numpy(x).permute(0, 3, 1, 2), used).permute(
        0, 2, 3, 1
    )
    expect(path, x, y.numpy())


def test_the_hard_sigmoid_of_keras_2_is_computed_and_not_that_of_keras_3(tmp_path: Path) -> None:
    config = functional(
        "chain", [layer("Dense", "d", units=3, activation="hard_sigmoid", use_bias=True)], [4]
    )
    kernel, bias, x = numbers(4, 3), numbers(3), numbers(5, 4)
    path = old_file(tmp_path / "m.h5", config, {"d": [("d/kernel:0", kernel), ("d/bias:0", bias)]})
    expect(path, x, sigmoid(x @ kernel + bias))
    assert not np.allclose(load_model(path)(x), sigmoid(x @ kernel + bias), atol=1e-3), (
        "Keras 3 would say nothing"
    )
    with suppress_copy_warning():
        open_keras(path).save(tmp_path / "again.keras")
    np.testing.assert_allclose(
        open_keras(tmp_path / "again.keras")(x), sigmoid(x @ kernel + bias), atol=1e-6
    )


def test_a_shape_that_keras_3_takes_for_another_is_that_of_the_file(tmp_path: Path) -> None:
    config = chain(
        layer(
            "Dense", "d", units=3, activation="linear", use_bias=True, batch_input_shape=[None, 4]
        )
    )
    kernel, bias, x = numbers(4, 3), numbers(3), numbers(5, 4)
    path = old_file(tmp_path / "m.h5", config, {"d": [("d/kernel:0", kernel), ("d/bias:0", bias)]})
    assert load_model(path).input_shape == (None, None, 4)
    assert (
        open_keras_with_reason(path).reason
        == "Keras 3 reads its input shape (None, 4) as (None, None, 4)"
    )
    expect(path, x, x @ kernel + bias)


@pytest.mark.parametrize("kind", ["CuDNNLSTM", "CuDNNGRU"])
def test_layers_for_cudnn(tmp_path: Path, kind: str) -> None:
    gates = 4 if kind == "CuDNNLSTM" else 3
    # What cuDNN and PyTorch have: a matrix (units, inputs) a gate, and two biases.  Their gates: i
    # f g o, and r z n.
    cell = (torch.nn.LSTM if gates == 4 else torch.nn.GRU)(2, 3, batch_first=True)
    order = (0, 1, 2, 3) if gates == 4 else (1, 0, 2)
    own = {
        name: value.detach().numpy().reshape(gates, 3, -1)
        for name, value in cell.named_parameters()
    }
    kernel = np.hstack([own["weight_ih_l0"][gate].reshape(2, 3) for gate in order])
    recurrent = np.hstack([own["weight_hh_l0"][gate] for gate in order])
    biases = [own[f"bias_{side}_l0"][gate].reshape(-1) for side in ("ih", "hh") for gate in order]
    config = chain(
        layer(
            kind,
            "r",
            units=3,
            return_sequences=False,
            return_state=False,
            go_backwards=False,
            stateful=False,
            batch_input_shape=[None, 4, 2],
        )
    )
    arrays = [
        ("r/kernel:0", kernel),
        ("r/recurrent_kernel:0", recurrent),
        ("r/bias:0", np.concatenate(biases)),
    ]
    x = numbers(5, 4, 2)
    expected = cell(torch.from_numpy(x))[0][:, -1].detach().numpy()
    expect(old_file(tmp_path / "m.h5", config, {"r": arrays}), x, expected)


def functional(name: str, inside: list[dict[str, Any]], shape: list[int]) -> dict[str, Any]:
    """Describe a chain as a model of layers that are listed."""
    first = f"{name}_input"
    layers = [
        {
            **layer("InputLayer", first, batch_input_shape=[None, *shape], dtype="float32"),
            "name": first,
            "inbound_nodes": [],
        }
    ]
    previous, call = first, 0
    for item in inside:
        own = item["config"]["name"]
        layers.append({**item, "name": own, "inbound_nodes": [[[previous, call, 0, {}]]]})
        previous, call = own, int(item["class_name"] in ("Model", "Functional"))
    return {
        "class_name": "Model",
        "config": {
            "name": name,
            "layers": layers,
            "input_layers": [[first, 0, 0]],
            "output_layers": [[previous, call, 0]],
        },
    }


def test_a_network_within_a_network_whose_calls_are_counted_from_1(tmp_path: Path) -> None:
    inner = functional("base", [layer("Dense", "inside/one", units=3, activation="relu")], [4])
    config = functional(
        "whole", [inner, layer("Dense", "last/one", units=2, activation="linear")], [4]
    )
    one, two = (numbers(4, 3), numbers(3)), (numbers(3, 2), numbers(2))
    weights: Arrays = {
        "base": [("inside/one/kernel:0", one[0]), ("inside/one/bias:0", one[1])],
        "last/one": [("last/one/kernel:0", two[0]), ("last/one/bias:0", two[1])],
    }
    x = numbers(5, 4)
    expect(
        old_file(tmp_path / "m.h5", config, weights),
        x,
        np.maximum(x @ one[0] + one[1], 0) @ two[0] + two[1],
    )


def test_what_only_counts_in_training_hinders_nothing(tmp_path: Path) -> None:
    own = {"class_name": "Mine", "config": {"amount": 3}}
    config = chain(
        layer(
            "Dense",
            "d",
            units=3,
            activation="linear",
            kernel_initializer=own,
            kernel_regularizer=own,
            bias_constraint=own,
            bias_initializer={"class_name": "Constant", "config": {"value": [1, 2, 3, 4]}},
            pointwise_regularizer=own,
            batch_input_shape=[None, 4],
        ),
    )
    kernel, bias, x = numbers(4, 3), numbers(3), numbers(5, 4)
    path = old_file(tmp_path / "m.h5", config, {"d": [("d/kernel:0", kernel), ("d/bias:0", bias)]})
    expect(path, x, x @ kernel + bias)


# Layers of Keras 3 that our vocabulary lacks, as Keras 2 described them; what Keras 3 makes of the
# same is the truth.
CELLS = {
    "class_name": "StackedRNNCells",
    "config": {
        "name": "cells",
        "trainable": True,
        "cells": [
            layer(
                "LSTMCell",
                "one",
                units=3,
                activation="tanh",
                recurrent_activation="sigmoid",
                implementation=2,
                kernel_initializer={
                    "class_name": "VarianceScaling",
                    "config": {"scale": 1, "dtype": "float32"},
                },
            ),
            layer(
                "GRUCell",
                "two",
                units=2,
                activation="tanh",
                recurrent_activation="sigmoid",
                reset_after=True,
            ),
        ],
    },
}
LACKING: dict[str, tuple[dict[str, Any], Callable[[], Any], tuple[int, ...]]] = {
    "cells": (
        layer("RNN", "r", return_sequences=False, time_major=False, unroll=False, cell=CELLS),
        lambda: keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.GRUCell(2)]),
        (4, 2),
    ),
    "masking": (layer("Masking", "r", mask_value=0.0), lambda: keras.layers.Masking(), (4, 2)),
    "convolutional": (
        layer(
            "ConvLSTM2D",
            "r",
            filters=2,
            kernel_size=[2, 2],
            time_major=False,
            padding="valid",
            strides=[1, 1],
            data_format="channels_last",
            recurrent_activation="sigmoid",
            return_sequences=False,
        ),
        lambda: keras.layers.ConvLSTM2D(2, 2, recurrent_activation="sigmoid"),
        (3, 5, 5, 1),
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_layers_that_keras_3_has_and_our_vocabulary_lacks(tmp_path: Path, name: str) -> None:
    import_keras()
    described, make, shape = LACKING[name]
    described = {
        **described,
        "config": {**described["config"], "batch_input_shape": [None, *shape]},
    }
    expected = keras.Sequential([keras.Input(shape), make()])
    values = [numbers(*weight.shape) for weight in expected.weights]
    expected.set_weights(values)
    arrays = [(f"r/{number}:0", value) for number, value in enumerate(values)]
    path = old_file(tmp_path / "m.h5", chain(described), {"r": arrays} if arrays else {})
    x = numbers(2, *shape)
    opened = open_keras_with_reason(path)
    np.testing.assert_allclose(opened.model(x), expected(x), atol=1e-6)
    with pytest.raises(KerasRefusal) if name != "masking" else pytest.MonkeyPatch.context():
        load_model(path)


# -- what stays refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (
            layer("Lambda", "twice", function=["4wEAAAAB", None, None]),
            r"holds a Lambda layer \('twice'\)",
        ),
        (
            layer("LocallyConnected1D", "own", filters=2),
            "own: Keras 3 has no layer LocallyConnected1D, nor have we",
        ),
        (layer("Peculiar", "odd", amount=2), "odd: Keras 3 has no layer Peculiar, nor have we"),
        (
            layer("Dense", "d", units=2, sparsity=0.5),
            "d: Dense of Keras 3 has no argument sparsity",
        ),
        (layer("Merge", "m", mode="cos", layers=[]), "m: Keras 3 has no layer Merge, nor have we"),
        (
            layer("BatchNormalization", "b", mode=2),
            "b: BatchNormalization of Keras 3 has no argument mode",
        ),
    ],
    ids=lambda value: value["class_name"] if isinstance(value, dict) else "",
)
def test_what_nobody_can_build_is_refused_in_one_line_that_names_the_layer(
    tmp_path: Path, described: dict[str, Any], why: str
) -> None:
    described["config"]["batch_input_shape"] = [None, 4, 2]
    path = old_file(tmp_path / "m.h5", chain(described), {})
    with pytest.raises(ArtifactError, match=why) as caught:
        open_keras(path)
    assert str(path) in str(caught.value)
    assert_one_line(caught.value)


def test_a_link_in_place_of_the_weights_is_not_followed(tmp_path: Path) -> None:
    config, weights, version = first_dense()
    old_file(tmp_path / "other.h5", config, weights, version)
    path = old_file(tmp_path / "m.h5", config, weights, version)
    with h5py.File(path, "r+") as file:
        del file["model_weights"]
        file["model_weights"] = h5py.ExternalLink("other.h5", "model_weights")
    with pytest.raises(ArtifactError, match="is a link, which is not followed"):
        open_keras(path)
