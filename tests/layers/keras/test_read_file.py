"""Keras's files: real ones, what Keras writes today, what we write for it, and what somebody
made to do harm.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import ImportedWhenUsed, needs
from property_examples import examples

from nnpipe import layers as nn
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.formats.keras import CONFIG, WEIGHTS
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.to_config import write_keras
from nnpipe.layers.keras.to_keras import to_keras
from nnpipe.layers.torch.to_torch import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("tensorflow")
keras = ImportedWhenUsed("keras")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")


def rich() -> nn.NetworkGraph:
    """Declare a network with everything that files may treat in a way of its own."""
    a, b = nn.Input((6, 8), name="a"), nn.Input((6, 8), name="b")
    inside = nn.Input((8,), name="inside")
    norm = nn.BatchNorm(nn.Dense(inside, 8, name="d"), name="n", gamma_initializer="random_uniform")
    inner = nn.network(inside, nn.Dense(norm, 8, trainable=False, name="frozen"), "inner")
    shared = nn.Dense(a, 8, name="both.of them", kernel_regularizer="l2")
    x = nn.Add([shared, shared.on(b)])
    x = nn.MultiHeadAttention([x, b, a], 2, 3, name="heads")
    memory = nn.LSTM(x, 4, return_sequences=True, return_state=True, name="memory")
    x = nn.Bidirectional(memory[0], nn.GRU((), 3, name="gru"), name="two ways")
    x = nn.Dropout(nn.Concatenate([x, memory[1]]), 0.1)
    x = nn.Submodel(nn.Dense(x, 8), inner, name="inner")
    return nn.network(
        [b, a], [nn.Dense(x.on(x, training=False), 3, "softmax", name="last"), memory[2]], "rich"
    )


def inputs_of(graph: nn.NetworkGraph) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [
        random.normal(size=(2, *graph.layers[r.layer].shape)).astype("float32")
        for r in graph.inputs
    ]  # type: ignore[attr-defined]


def run(graph: nn.NetworkGraph, weights: Any) -> list[np.ndarray]:
    with torch.no_grad():
        return [
            y.numpy()
            for y in to_torch(graph, weights).eval().flat(*map(torch.from_numpy, inputs_of(graph)))
        ]


def codes(reading: Reading) -> list[str]:
    return [problem.code for problem in reading.problems]


def same_weights(mine: Any, its: Any) -> None:
    assert mine.keys() == its.keys()
    for name, value in its.items():
        np.testing.assert_array_equal(mine[name], value, err_msg=name)


# -- real files -----------------------------------------------------------------------------------


def test_every_real_file_is_read(shared_data: Path) -> None:
    files = sorted(
        [*(shared_data / "keras_files").glob("*5"), *(shared_data / "models").rglob("*.h5")]
    )
    assert len(files) == 25
    for path in files:
        reading = read_keras(path)
        if path.suffix == ".hdf5":
            assert codes(reading) == ["weights-only"]
            assert reading.graph is None
            continue
        assert reading.problems == (), path
        assert reading.graph is not None
        assert reading.graph.problems() == ()


@pytest.mark.parametrize("backend", ["torch", "keras"])
@pytest.mark.parametrize(
    "name", ["32_32_1_conv_sequential", "32_32_1_conv_sequential-trained", "nonSequentialModel1"]
)
def test_predictions_recorded_beside_real_files_are_reproduced(
    shared_data: Path, name: str, backend: str
) -> None:
    recorded = json.loads((shared_data / "keras_files" / "predictions.json").read_text())["models"][
        name
    ]
    reading = read_keras(shared_data / "keras_files" / recorded["file"])
    graph = reading.graph
    assert graph is not None
    assert [ref.layer for ref in graph.inputs] == recorded["inputs"]
    assert [n for n in graph.layers if not n.endswith("_input")] == recorded["layers"]
    assert sum(value.size for value in reading.weights.values()) == recorded["params"]
    (shape,) = recorded["input_shapes"]
    x = (np.arange(np.prod(shape)) % 17 / 17).reshape(shape).astype("float32")
    if backend == "torch":
        found = to_torch(graph, reading.weights).eval()(torch.from_numpy(x)).detach().numpy()
    else:
        found = np.asarray(to_keras(graph, reading.weights)(x, training=False))
    np.testing.assert_allclose(found, recorded["output"], atol=1e-5)


def test_the_mlperf_tiny_network_computes_what_keras_computes(shared_data: Path) -> None:
    path = shared_data / "models" / "mlperf_tiny_ic" / "pretrainedResnet.h5"
    from nnpipe.frameworks.keras_files import load_model

    reading = read_keras(path)
    assert reading.graph is not None
    x = np.random.default_rng(0).uniform(0, 255, (4, 32, 32, 3)).astype("float32")
    mine = to_torch(reading.graph, reading.weights).eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(mine, np.asarray(load_model(path)([x], training=False)), atol=1e-5)


def test_weights_alone_are_read_into_the_graph_they_are_for(shared_data: Path) -> None:
    folder = shared_data / "keras_files"
    graph = read_keras(folder / "32_32_1_conv_sequential.h5").graph
    assert graph is not None
    alone = read_keras(folder / "sequential_5-weights.01-0.00.hdf5", graph)
    assert alone.problems == ()
    assert alone.weights.keys() == initial_weights(graph).keys()
    nameless = read_keras(folder / "sequential_5-weights.01-0.00.hdf5")
    np.testing.assert_array_equal(
        alone.weights["dense_10/kernel"], nameless.weights["dense_10/dense_10/kernel:0"]
    )


# -- Keras and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_keras_writes_is_read(tmp_path: Path, suffix: str) -> None:
    graph = rich()
    weights = initial_weights(graph, 4)
    import_keras()
    with suppress_copy_warning():
        to_keras(graph, weights).save(tmp_path / f"m{suffix}")
    reading = read_keras(tmp_path / f"m{suffix}")
    assert reading.problems == ()
    assert reading.graph is not None
    same_weights(reading.weights, weights)
    for mine, expected in zip(
        run(reading.graph, reading.weights), run(graph, weights), strict=True
    ):
        np.testing.assert_array_equal(mine, expected)
    if suffix == ".keras":  # the older form says more and less
        mine, its = reading.graph, graph
        assert (mine.inputs, mine.outputs, mine.name) == (its.inputs, its.outputs, its.name)
        assert {e.layer.name: e for e in mine.entries} == {e.layer.name: e for e in its.entries}


def test_keras_loads_what_is_written(tmp_path: Path) -> None:
    graph = rich()
    weights = initial_weights(graph, 5)
    write_keras(tmp_path / "m.keras", graph, weights)
    import_keras()
    model = keras.saving.load_model(tmp_path / "m.keras", compile=False)
    for mine, its in zip(run(graph, weights), model(inputs_of(graph), training=False), strict=True):
        np.testing.assert_allclose(mine, np.asarray(its), atol=1e-5)


def test_what_is_written_is_read_again_to_the_bit(tmp_path: Path) -> None:
    graph = rich()
    weights = initial_weights(graph, 5)
    for name in ("one.keras", "two.keras"):
        write_keras(tmp_path / name, graph, weights)
    assert (tmp_path / "one.keras").read_bytes() == (tmp_path / "two.keras").read_bytes()
    reading = read_keras(tmp_path / "one.keras")
    assert (reading.graph, reading.problems) == (graph, ())
    same_weights(reading.weights, weights)


def test_a_name_that_keras_refuses_is_not_written(tmp_path: Path) -> None:
    x = nn.Input((4,))
    graph = nn.network(x, nn.Dense(x, 3, name="block/dense"))
    with pytest.raises(ConfigError, match="block/dense: keras: a name may not contain"):
        write_keras(tmp_path / "m.keras", graph, initial_weights(graph))


def test_weights_that_do_not_fit_are_not_written(tmp_path: Path) -> None:
    graph = rich()
    weights = initial_weights(graph)
    weights["last/bias"] = np.zeros(7, "float32")
    del weights["last/kernel"]
    with pytest.raises(
        ConfigError, match=r"last/kernel: is missing; last/bias: has the shape \(7,\)"
    ):
        write_keras(tmp_path / "m.keras", graph, weights)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_layer_survives_with_its_weights(tmp_path: Path) -> None:
    import_keras()
    x = keras.Input((4,))
    y = keras.layers.EinsumDense("ab,bc->ac", output_shape=3, bias_axes="c", name="odd")(
        keras.layers.Dense(4)(x)
    )
    model = keras.Model(x, keras.layers.Dense(2, name="after")(y))
    with suppress_copy_warning():
        model.save(tmp_path / "m.keras")
    reading = read_keras(tmp_path / "m.keras")
    assert reading.graph is not None
    assert codes(reading) == ["unknown-layer"]
    assert reading.problems[0].path == "config.layers[2]"
    assert "odd/vars/0" in reading.weights
    with pytest.raises(ConfigError, match="odd: EinsumDense is not in the vocabulary"):
        to_torch(reading.graph, reading.weights)
    write_keras(tmp_path / "again.keras", reading.graph, reading.weights)
    again = read_keras(tmp_path / "again.keras")
    assert again.graph == reading.graph
    same_weights(again.weights, reading.weights)
    batch = np.ones((2, 4), "float32")
    loaded = keras.saving.load_model(tmp_path / "again.keras", compile=False)
    np.testing.assert_array_equal(np.asarray(loaded(batch)), np.asarray(model(batch)))


# -- harm -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = nn.Input((4,), name="x")
    graph = nn.network(x, nn.Dense(nn.Dense(x, 5, name="hidden"), 3, name="y"), "small")
    path = tmp_path_factory.mktemp("written") / "m.keras"
    write_keras(path, graph, initial_weights(graph))
    return path


def repacked(
    written: Path,
    path: Path,
    member: str,
    change: Callable[[bytes], bytes],
    compressed: bool = False,
) -> Path:
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w", kind) as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name == member else old.read(name))
    return path


def in_weights(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        stored = io.BytesIO(content)
        with h5py.File(stored, "r+") as file:
            change(file)
        return stored.getvalue()

    return edit


def test_a_zip_bomb_is_not_unpacked(written: Path, tmp_path: Path) -> None:
    path = repacked(
        written, tmp_path / "m.keras", WEIGHTS, lambda _: bytes(64 << 20), compressed=True
    )
    reading = read_keras(path)
    assert codes(reading) == ["damaged"]
    assert "claims 67,108,864 bytes" in reading.problems[0].message


def test_a_structure_that_claims_more_than_the_file_holds_is_refused(
    written: Path, tmp_path: Path
) -> None:
    def change(content: bytes) -> bytes:
        return content.replace(b'"units": 5', b'"units": 2000000000')

    reading = read_keras(repacked(written, tmp_path / "m.keras", CONFIG, change))
    assert codes(reading) == ["size"]
    assert reading.weights == {}


KERNEL = "layers/dense/vars/0"


def giant(file: Any) -> None:
    del file[KERNEL]
    file.create_dataset(KERNEL, (1 << 40,), "f4", chunks=(1 << 20,))


def linked(file: Any) -> None:
    del file[KERNEL]
    file[KERNEL] = h5py.ExternalLink("/etc/passwd", "data")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (giant, "weights", "has the shape"),
        (linked, "weights", "is a link, which is not followed"),
        (lambda file: file.__delitem__(KERNEL), "weights", "is missing in the file"),
        (
            lambda file: file.__setitem__("layers/dense_7/vars/0", np.ones(3)),
            "weights",
            "and not in the network",
        ),
        (lambda file: file.__delitem__("layers"), "weights", "holds no weights"),
        (
            lambda file: file["layers"].__setitem__("again", file["layers"]),
            "weights",
            "nested more than 64 deep",
        ),
    ],
)
def test_weights_that_lie_are_told(
    written: Path, tmp_path: Path, change: Any, code: str, words: str
) -> None:
    reading = read_keras(repacked(written, tmp_path / "m.keras", WEIGHTS, in_weights(change)))
    assert reading.graph is not None
    assert codes(reading) == [code]
    assert words in reading.problems[0].message


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"class_name": "Lambda"}']
)
def test_a_damaged_structure_is_a_problem(written: Path, tmp_path: Path, text: bytes) -> None:
    reading = read_keras(repacked(written, tmp_path / "m.keras", CONFIG, lambda _: text))
    assert reading.graph is None
    assert codes(reading)[0] in ("damaged", "structure")


@pytest.mark.parametrize("content", [b"", b"PK", b"\x89HDF\r\n\x1a\n", b"nothing of the kind"])
def test_a_damaged_file_is_a_problem(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.h5").write_bytes(content)
    reading = read_keras(tmp_path / "m.h5")
    assert codes(reading) == ["damaged"]
    assert reading.graph is None


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such"):
        read_keras(tmp_path / "m.keras")


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_flipped_bytes_raise_nothing(
    written: Path, tmp_path: Path, data: st.DataObject, suffix: str
) -> None:
    content = bytearray(written.read_bytes())
    if suffix == ".h5":
        content = bytearray(zipfile.ZipFile(written).read(WEIGHTS))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / f"m{suffix}"
    path.write_bytes(content)
    reading = read_keras(path)
    assert all("\n" not in problem.message for problem in reading.problems)
