from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, ConversionError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.graph import Selector
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.frameworks.keras import suppress_copy_warning
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper
from nnpipe.testing._analysis import assert_well_formed
from nnpipe.testing.modelwrapper import ModelWrapperContract
from nnpipe.testing.session import assert_one_line

pytestmark = pytest.mark.skipif(
    bool(TensorFlowWrapper.missing()), reason="TensorFlow is not installed"
)


def vector(name: str, length: int) -> TensorSpec:
    return TensorSpec(name, (None, length), "float32")


class TwinTower(TensorFlowWrapper):
    """Two inputs through one tower, two outputs: nested and shared layers, dropout, a frozen
    part.
    """

    penalty: float = argument(1e-3, help="weight of the squares of the last kernel")

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (vector("right", 6), vector("left", 6)), (vector("class", 3), vector("distance", 1))
        )

    def build(self) -> Any:
        import keras

        layers = keras.layers
        inner = keras.Input((6,))
        tower = keras.Model(
            inner,
            layers.BatchNormalization()(layers.Dense(8, activation="relu")(inner)),
            name="tower",
        )
        frozen = keras.Sequential(
            [keras.Input((8,)), layers.Dense(4), layers.Dropout(0.5)], name="frozen"
        )
        frozen.trainable = False
        left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
        a, b = tower(left), tower(right)
        joined = layers.Concatenate()([a, frozen(a, training=False), layers.Dropout(0.1)(b)])
        distance = layers.Dense(1)(keras.ops.abs(a - b))
        classes = layers.Dense(
            3, activation="softmax", kernel_regularizer=keras.regularizers.L2(self.penalty)
        )(joined)
        return keras.Model([left, right], {"distance": distance, "class": classes})

    def loss(self, outputs: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
        import keras

        right = keras.losses.sparse_categorical_crossentropy(truth["class"], outputs["class"])
        return right + keras.losses.mean_squared_error(truth["distance"], outputs["distance"])

    def score(self, outputs: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
        import keras

        return keras.metrics.sparse_categorical_accuracy(truth["class"], outputs["class"])

    def random_truth(self, size: int, seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        return {"class": rng.integers(0, 3, size), "distance": rng.random((size, 1), np.float32)}


class Pairs(InMemoryDataset):
    """Two vectors; the class says which of their first numbers is larger."""

    count: int = 90

    @property
    def spec(self) -> DatasetSpec:
        targets = (TensorSpec("class", (None,), "int64"), vector("distance", 1))
        return DatasetSpec("comparison", (vector("left", 6), vector("right", 6)), targets)

    def load(self) -> Samples:
        rng = np.random.default_rng(0)
        left, right = rng.standard_normal((2, self.count, 6)).astype("float32")
        order = np.sign(left[:, 0] - right[:, 0]).astype("int64") + 1
        return Samples(
            {"left": left, "right": right},
            {"class": order, "distance": np.abs(left - right)[:, :1]},
        )

    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        return Evaluation(
            "comparison", {"error": np.abs(predictions["distance"] - truth["distance"])}
        )


class TestTwinTower(ModelWrapperContract):
    learning_rate = 0.01

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return TwinTower()

    @pytest.fixture
    def dataset(self) -> Dataset:
        return Pairs()


class Dot(TensorFlowWrapper):
    """The smallest classifier, for what needs no more."""

    units: int = 3
    activation: str = "softmax"
    twice: bool = False

    @property
    def io(self) -> IOSpec:
        return IOSpec((vector("x", 4),), (vector("scores", 3),))

    def build(self) -> Any:
        import keras

        layers = [
            keras.Input((4,), name="x"),
            keras.layers.Dense(self.units, activation=self.activation),
        ]
        return keras.Sequential([*layers, *([keras.layers.Dense(3)] if self.twice else [])])


class Clouds(InMemoryDataset):
    """Three clouds of points."""

    scale: float = 1.0

    @property
    def spec(self) -> DatasetSpec:
        names = ("a", "b", "c")
        return DatasetSpec(
            "classification", (vector("x", 4),), (TensorSpec("label", (None,), "int64"),), names
        )

    def load(self) -> Samples:
        rng = np.random.default_rng(0)
        labels = np.arange(70) % 3
        points = np.eye(3, 4)[labels] + 0.2 * rng.standard_normal((70, 4))
        return Samples(
            {"x": (points * self.scale).astype("float32")}, {"label": labels}, ("a", "b", "c")
        )


# -- the model ------------------------------------------------------------------------------------


def test_a_model_that_is_not_what_io_says_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Dot: tensor 'scores' of the model is float32 \(\?, 5\); io says"
    ) as caught:
        _ = Dot(units=5).open().native
    assert_one_line(caught.value)


def test_a_model_with_names_of_its_own_is_held_to_io() -> None:
    import keras

    class Renamed(Dot):
        """Calls its output otherwise."""

        def build(self) -> Any:
            return keras.Sequential(
                [keras.Input((4,), name="x"), keras.layers.Dense(3, name="logits")]
            )

    with pytest.raises(ConfigError, match="the model has the outputs logits; io says scores"):
        _ = Renamed().open().native


def test_a_model_without_a_graph_of_layers_is_refused() -> None:
    import keras

    class Imperative(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    class Unknown(Dot):
        """Gives a model that cannot be looked into."""

        def build(self) -> Any:
            return Imperative()

    with pytest.raises(ConfigError, match="gives a Imperative; make it functional") as caught:
        _ = Unknown().open().native
    assert_one_line(caught.value)


def test_making_and_training_a_model_leaves_the_random_numbers_of_others_alone() -> None:
    import keras

    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    states = keras.src.backend.common.global_state
    states.set_global_attribute("global_random_seed", None)  # which other tests may have left set
    Dot().open().train(Clouds(), TrainingOptions(num_epochs=1))
    assert (random.random(), np.random.random()) == expected
    assert states.get_global_attribute("global_random_seed") is None


# -- weights --------------------------------------------------------------------------------------


def test_names_of_weights_do_not_count_what_others_built() -> None:
    import keras

    first = list(TwinTower().open().get_weights())
    for _ in range(3):
        keras.layers.Dense(2), keras.layers.LSTM(2), keras.layers.BatchNormalization()
    assert list(TwinTower().open().get_weights()) == first
    assert {
        "tower/dense/kernel",
        "tower/batch_normalization/gamma",
        "frozen/dense/bias",
        "dense_1/kernel",
    } <= {*first}


def test_weights_take_numbers_of_other_types() -> None:
    model = Dot().open()
    model.set_weights({"dense/bias": np.array([1, 2, 3])})
    np.testing.assert_array_equal(model.get_weights()["dense/bias"], np.array([1, 2, 3], "float32"))


# -- graphs ---------------------------------------------------------------------------------------


def test_the_graph_opens_nested_models_and_tells_calls_apart() -> None:
    graph = TwinTower().open().get_inference_graph()
    operations = {operation.name: operation for operation in graph.operations}
    assert operations["tower/dense"].layer == operations["tower/dense#2"].layer == "tower/dense"
    assert operations["tower/dense"].inputs[0] != operations["tower/dense#2"].inputs[0]
    assert operations["tower/dense"].inputs[1:] == ("tower/dense/kernel", "tower/dense/bias")
    assert {"Dense", "BatchNormalization", "Concatenate", "Absolute", "Subtract"} <= {
        operation.kind for operation in graph.operations
    }
    assert graph.inputs == ("right", "left")
    assert graph.outputs == ("class", "distance")
    assert graph.tensors["tower/batch_normalization"].shape == (None, 8)


def test_the_training_graph_goes_forwards_and_backwards_and_knows_its_layers() -> None:
    graph = TwinTower().open().get_training_graph()
    product = next(operation for operation in graph.operations if operation.kind == "MatMul")
    assert product.layer == "tower/dense"
    read = next(
        operation for operation in graph.operations if product.inputs[1] in operation.outputs
    )
    assert read.kind == "ReadVariableOp"
    assert read.inputs == ("tower/dense/kernel",)
    backwards = [
        operation for operation in graph.operations if operation.name.startswith("gradient_tape/")
    ]
    assert {"tower/dense", "tower/batch_normalization", "dense_1"} <= {o.layer for o in backwards}
    assert "frozen/dense" in {operation.layer for operation in graph.operations}
    assert set(graph.inputs) == {"left", "right", "class", "distance"}
    assert [graph.tensors[name].shape for name in graph.outputs] == [(), ()]
    updated = {
        name
        for operation in graph.operations
        for name in operation.inputs
        if name.startswith("optimizer/")
    }
    assert {"optimizer/tower/dense/kernel/momentum", "optimizer/iteration"} <= updated
    assert not any("frozen" in name for name in updated)


def test_values_on_the_way_are_those_of_keras() -> None:

    live = TwinTower().open()
    batch = {
        "left": np.ones((4, 6), "float32"),
        "right": np.arange(24, dtype="float32").reshape(4, 6),
    }
    model = live.native
    both = live.get_intermediates(Selector(layer="tower/batch_normalization"), batch)
    for side in ("left", "right"):
        expected = model.get_layer("tower")(batch[side]).numpy()
        assert any(np.allclose(array, expected, rtol=1e-6) for array in both.values()), side
    assert len(both) == 2


def test_a_wrong_selector_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean tower/dense"):
        TwinTower().open().get_intermediates(Selector(layer="towr/dense"))


def test_the_profile_of_a_training_has_the_names_of_its_graph() -> None:
    model = TwinTower().open()
    kinds = {operation.name: operation.kind for operation in model.get_training_graph().operations}
    timings = model.profile_training(2).timings
    assert {timing.operation: timing.kind for timing in timings}.items() <= kinds.items()
    assert {"MatMul", "Relu", "ReluGrad"} <= {timing.kind for timing in timings if timing.total_ns}


@pytest.mark.slow  # two more graphs
def test_the_training_graph_is_the_same_at_every_call() -> None:
    for wrapper in (TwinTower, Loop):
        assert wrapper().open().get_training_graph() == wrapper().open().get_training_graph()


class Loop(TensorFlowWrapper):
    """A layer that loops."""

    steps: ClassVar[int] = 20

    @property
    def io(self) -> IOSpec:
        return IOSpec((TensorSpec("x", (None, self.steps, 6), "float32"),), (vector("scores", 3),))

    def build(self) -> Any:
        import keras
        from keras import layers

        x = keras.Input((self.steps, 6), name="x")
        hidden = layers.LSTM(5, name="loop")(layers.Dense(6)(x))
        return keras.Model(x, layers.Dense(3, activation="softmax")(hidden))


class LongLoop(Loop):
    """A loop that takes far longer than a pause of the machine in another layer."""

    steps: ClassVar[int] = 500


def test_a_loop_inside_a_layer_counts_for_the_layer() -> None:
    model = LongLoop().open()
    timings = {timing.operation: timing.total_ns for timing in model.profile_inference(10).timings}
    assert timings.keys() == {"dense", "loop", "dense_1"}
    assert timings["loop"] > timings["dense"] > 0
    assert "loop/lstm_cell/recurrent_kernel" in model.get_weights()


def test_the_training_graph_of_a_loop_is_whole() -> None:
    graph = Loop().open().get_training_graph()
    assert_well_formed(graph)
    assert {"While", "Softmax"} <= {operation.kind for operation in graph.operations}


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> Any:
    """A model whose weights are no longer those that it begins with."""
    model = TwinTower().open()
    model.run_training(2)
    return model


@pytest.mark.parametrize("name", ["model.h5", "model.weights.h5", "model.keras", "odd.bin"])
def test_every_kind_of_keras_file_can_be_read(name: str, trained: Any, tmp_path: Path) -> None:
    with suppress_copy_warning():
        if name.endswith(".weights.h5"):
            trained.native.save_weights(tmp_path / name)
        elif name.endswith(".h5"):
            trained.native.save(tmp_path / name)
        else:
            trained.save(tmp_path / name)
    fresh = TwinTower().open()
    fresh.load(tmp_path / name)
    expected = trained.get_weights()
    assert fresh.get_weights().keys() == expected.keys()
    for key, array in fresh.get_weights().items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


@pytest.mark.parametrize("name", ["model.h5", "model.weights.h5", "model.keras"])
@pytest.mark.parametrize(
    "other", [{"units": 4}, {"twice": True}], ids=["another width", "one layer more"]
)
def test_weights_of_another_model_are_refused(
    name: str, other: dict[str, Any], tmp_path: Path
) -> None:
    class Other(Dot):
        """Has weights of another structure."""

        @property
        def io(self) -> IOSpec:
            return IOSpec(Dot().io.inputs, (vector("scores", 3 if self.twice else self.units),))

    model = Other(**other).open().native
    with suppress_copy_warning():
        (model.save_weights if name.endswith("weights.h5") else model.save)(tmp_path / name)
    live = Dot().open()
    before = live.get_weights()
    with pytest.raises(
        ArtifactError, match="holds the weights of another model than Dot"
    ) as caught:
        live.load(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert_one_line(caught.value)
    for key, array in live.get_weights().items():
        np.testing.assert_array_equal(array, before[key])


def test_hdf5_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"saved as \.keras") as caught:
        Dot().open().save(tmp_path / "model.h5")
    assert_one_line(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_saved_leaves_the_old_file_whole(tmp_path: Path) -> None:
    import keras

    @keras.saving.register_keras_serializable("nnpipe-test")
    class Stubborn(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x

        def get_config(self) -> dict[str, Any]:
            raise TypeError("no\nconfig")

    class Unsaveable(Dot):
        """Has a layer that does not describe itself."""

        def build(self) -> Any:
            x = keras.Input((4,), name="x")
            return keras.Model(x, keras.layers.Dense(3)(Stubborn()(x)))

    path = tmp_path / "model.keras"
    path.write_bytes(b"the old file")
    with pytest.raises(ConversionError, match="Unsaveable cannot be saved: no config") as caught:
        Unsaveable().open().save(path)
    assert_one_line(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["model.keras"]
    assert path.read_bytes() == b"the old file"


# -- ONNX -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", [TwinTower(), Dot()], ids=["twin tower", "dot"])
def test_onnx_computes_the_same_for_any_number_of_samples(
    wrapper: TensorFlowWrapper, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model = wrapper.open()
    model.run_training(3)
    artifact = model.export(tmp_path / "model.onnx", "onnx")
    native = onnxruntime.InferenceSession(str(artifact.path), providers=["CPUExecutionProvider"])
    for side, specs in (
        (native.get_inputs(), wrapper.io.inputs),
        (native.get_outputs(), wrapper.io.outputs),
    ):
        assert [value.name for value in side] == [spec.name for spec in specs]
        assert all(value.shape[0] == "batch" for value in side)
    rng = np.random.default_rng(0)
    with model.session() as session:
        for count in (1, 5):
            batch = {
                s.name: rng.random((count, s.shape[1] or 1), np.float32) for s in wrapper.io.inputs
            }
            expected = session.infer(batch)
            found = native.run(list(expected), batch)
            for name, array in zip(expected, found, strict=True):
                np.testing.assert_allclose(array, expected[name], atol=1e-5, rtol=1e-5)


# TensorFlow holds few and many numbers differently
@pytest.mark.parametrize("features", [4, 200], ids=["few", "many"])
def test_onnx_holds_the_mean_of_a_normalisation(features: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    mean, variance = np.linspace(1, 2, features), np.linspace(0.5, 3, features)

    class Normal(Dot):
        """Scales its input by numbers that are no variables."""

        @property
        def io(self) -> IOSpec:
            return IOSpec((vector("x", features),), (vector("scores", 3),))

        def build(self) -> Any:
            import keras

            x = keras.Input((features,), name="x")
            return keras.Model(
                x,
                keras.layers.Dense(3)(keras.layers.Normalization(mean=mean, variance=variance)(x)),
            )

    model = Normal().open()
    artifact = model.export(tmp_path / "model.onnx", "onnx")
    batch = {"x": np.random.default_rng(0).random((5, features), np.float32)}
    native = onnxruntime.InferenceSession(str(artifact.path), providers=["CPUExecutionProvider"])
    assert [value.name for value in native.get_inputs()] == ["x"]
    with model.session() as session:
        for name, expected in session.infer(batch).items():
            np.testing.assert_allclose(native.run([name], batch)[0], expected, atol=1e-5, rtol=1e-5)


def test_what_onnx_cannot_hold_is_named_in_one_line(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    class Odd(Dot):
        """Uses an operation that has no counterpart in ONNX."""

        def build(self) -> Any:
            class Bessel(keras.layers.Layer):
                def call(self, x: Any) -> Any:
                    return tf.math.special.bessel_i0(x)

            x = keras.Input((4,), name="x")
            return keras.Model(x, keras.layers.Dense(3)(Bessel()(x)))

    with pytest.raises(ConversionError, match="Odd cannot be exported as onnx") as caught:
        Odd().open().export(tmp_path / "model.onnx", "onnx")
    assert_one_line(caught.value)
    assert list(tmp_path.iterdir()) == []


# -- training -------------------------------------------------------------------------------------


def test_figures_weigh_every_sample_the_same() -> None:
    model, dataset = Dot().open(), Clouds(validation_fraction=0.35)
    history = model.train(dataset, TrainingOptions(num_epochs=1, batch_size=13, learning_rate=0.0))
    for split, prefix in (("train", ""), ("validation", "validation_")):
        inputs, truth = dataset.read(dataset.split(split))
        assert len(truth["label"]) % 13
        with model.session() as session:
            scores = session.infer(inputs)["scores"]
        loss = -np.log(scores[np.arange(len(scores)), truth["label"]]).mean()
        accuracy = (scores.argmax(-1) == truth["label"]).mean()
        assert history.epochs[0][prefix + "loss"] == pytest.approx(loss, rel=1e-5)
        assert history.epochs[0][prefix + "accuracy"] == pytest.approx(accuracy, rel=1e-6)


@pytest.mark.slow  # the contract asks for the same of one model
def test_equal_seeds_give_equal_weights_to_the_last_bit() -> None:
    import keras

    options = TrainingOptions(num_epochs=2, batch_size=16, seed=3)
    first, second = TwinTower().open(), TwinTower().open()
    first.train(Pairs(), options)
    random.random()
    keras.layers.Dense(2)
    second.train(Pairs(), options)
    expected = second.get_weights()
    for name, array in first.get_weights().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("seeds", [(1, 2), (0, 2**62 + 1)])
def test_a_seed_decides_the_first_weights(seeds: tuple[int, int]) -> None:
    options = [TrainingOptions(num_epochs=1, learning_rate=0.0, seed=seed) for seed in seeds]
    models = [Dot().open(), Dot().open()]
    for model, option in zip(models, options, strict=True):
        model.train(Clouds(), option)
    first, second = (model.get_weights(["dense/kernel"])["dense/kernel"] for model in models)
    assert not np.array_equal(first, second)


def test_a_model_that_is_there_is_trained_on() -> None:
    model = Dot().open()
    before = model.get_weights()
    model.train(Clouds(), TrainingOptions(num_epochs=1, learning_rate=0.0, seed=9))
    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_loss_that_is_no_number_ends_the_training_and_says_what_to_do() -> None:
    class Endless(Clouds):
        """Clouds without end."""

        def load(self) -> Samples:
            found = super().load()
            return Samples(
                {"x": np.full_like(found.inputs["x"], np.inf)}, found.targets, found.class_names
            )

    with pytest.raises(
        ConfigError, match=r"epoch 1/2: the loss became (nan|inf) in step 1; lower --learning-rate"
    ) as e:
        Dot(activation="linear").open().train(Endless(), TrainingOptions(num_epochs=2))
    assert_one_line(e.value)


def test_a_model_of_frozen_layers_has_nothing_to_train() -> None:
    class Frozen(Dot):
        """Does not learn."""

        def build(self) -> Any:
            model = super().build()
            model.trainable = False
            return model

    with pytest.raises(ConfigError, match="Frozen has no weights to train"):
        Frozen().open().train(Clouds(), TrainingOptions())


@pytest.mark.slow
def test_a_penalty_on_weights_is_part_of_the_loss() -> None:
    model = TwinTower().open()
    weight = next(
        layer.kernel.numpy() for layer in model.native.layers if getattr(layer, "units", 0) == 3
    )
    free, plain = TwinTower(penalty=0.0).open().run_training(1)[0][0], model.run_training(1)[0][0]
    assert plain - free == pytest.approx(1e-3 * float((weight**2).sum()), rel=1e-3)


def test_training_without_samples_is_refused() -> None:
    class Empty(Clouds):
        """Holds nothing to learn from."""

        def split(self, name: str) -> np.ndarray:
            return np.arange(0)

    with pytest.raises(ConfigError, match="Empty has no training samples"):
        Dot().open().train(Empty(), TrainingOptions())


class Forgetful(Dot):
    """Draws random numbers in training."""

    def build(self) -> Any:
        import keras

        layers = [keras.layers.Dropout(0.5), keras.layers.Dense(3, activation="softmax")]
        return keras.Sequential([keras.Input((4,), name="x"), *layers])


@pytest.mark.slow
def test_a_training_that_was_interrupted_goes_on_where_its_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="Matplotlib is not installed").Figure
    # nobody looks at the pictures
    monkeypatch.setattr(figure, "savefig", lambda _, path, **more: path.touch())

    def options(**more: Any) -> TrainingOptions:
        return TrainingOptions.from_json(
            {"num_epochs": 3, "batch_size": 16, "learning_rate": 0.01, **more}
        )

    seen: list[str] = []

    def progress(items: Any, what: str, total: int | None = None) -> Any:
        seen.append(what)
        if seen == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]:
            raise KeyboardInterrupt
        return items

    undisturbed, resumed = Forgetful().open(), Forgetful().open()
    history = undisturbed.train(Clouds(), options())
    with pytest.raises(KeyboardInterrupt):
        Forgetful().open().train(Clouds(), options(run_folder=str(tmp_path)), progress)
    seen.clear()
    assert resumed.train(Clouds(), options(run_folder=str(tmp_path)), progress) == history
    assert seen == ["epoch 3/3"]
    for name, array in undisturbed.get_weights().items():
        np.testing.assert_array_equal(array, resumed.get_weights([name])[name])
    with pytest.raises(
        ConfigError,
        match=(
            r"last\.state: this run was started with different settings: .*training\.seed was 0 "
            r"and is 5"
        ),
    ):
        Forgetful().open().train(Clouds(), options(run_folder=str(tmp_path), seed=5))
