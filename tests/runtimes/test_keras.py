from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.classification.small_cnn import TensorFlowDigitsCNN
from nnpipe.runtimes.keras import KerasRuntime
from nnpipe.testing.runtime import RuntimeContract

needs("tensorflow")


@pytest.fixture(scope="module")
def model() -> LiveModel:
    return TensorFlowDigitsCNN().open()


@pytest.fixture(scope="module")
def exported(model: LiveModel, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return model.export(tmp_path_factory.mktemp("model") / "digits.keras", "keras")


class TestKerasRuntime(RuntimeContract):
    repeats = RULES_OF_SESSIONS  # which tests/modelwrappers/frameworks/test_tensorflow.py runs

    @pytest.fixture
    def runtime(self) -> Runtime:
        return KerasRuntime()

    @pytest.fixture
    def artifact(self, exported: Artifact) -> Artifact:
        return exported

    @pytest.fixture
    def expected(self, model: LiveModel, batch: Batch) -> Batch:
        return {"scores": np.asarray(model.native(batch["image"]).numpy())}


def test_a_model_with_a_lambda_is_not_run(tmp_path: Path) -> None:
    import keras

    x = keras.Input((4,), name="x")
    path = tmp_path / "lambda.keras"
    keras.Model(x, keras.layers.Lambda(lambda v: v * 2, name="y", output_shape=(4,))(x)).save(path)
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    with pytest.raises(ArtifactError, match=r"lambda\.keras: holds a Lambda layer \('y'\)"):
        KerasRuntime().load(Artifact.create(path, "keras", io))


def test_a_model_saved_by_others_runs_under_the_names_that_its_description_gives(
    tmp_path: Path,
) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Flatten()])
    model.save(tmp_path / "theirs.keras")
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    batch = {"x": np.arange(8, dtype="float32").reshape(2, 4)}
    with KerasRuntime().load(Artifact.create(tmp_path / "theirs.keras", "keras", io)) as session:
        np.testing.assert_array_equal(session.infer(batch)["y"], batch["x"])


def convolving(path: Path) -> Artifact:
    import keras

    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 3), name="image")
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(image))
    keras.Model(
        image,
        {"b": keras.layers.Flatten(name="b")(x), "a": keras.layers.GlobalMaxPooling2D(name="a")(x)},
    ).save(path)
    outputs = (TensorSpec("b", (None, 64), "float32"), TensorSpec("a", (None, 4), "float32"))
    return Artifact.create(
        path, "keras", IOSpec((TensorSpec("image", (None, 6, 6, 3), "float32"),), outputs)
    )


def test_frozen_weights_give_the_same_by_the_same_names(tmp_path: Path) -> None:
    artifact = convolving(tmp_path / "m.keras")
    given = {"image": np.random.default_rng(0).random((2, 6, 6, 3), "f")}
    with KerasRuntime(freeze=False).load(artifact) as session:
        expected = session.infer(given)
        assert session._function.captured_inputs  # type: ignore[attr-defined]
    with KerasRuntime().load(artifact) as session:
        found = session.infer(given)
        assert not getattr(session._function, "captured_inputs", ())  # type: ignore[attr-defined]
    assert list(found) == ["b", "a"]
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_steps_name_the_calls_of_layers(tmp_path: Path) -> None:
    import keras

    x = keras.Input((64,), name="x")
    twice, inner = keras.layers.Dense(64, "relu", name="twice"), keras.Input((64,))
    block = keras.Model(inner, keras.layers.Dense(8, name="last")(inner), name="block")
    path = tmp_path / "m.keras"
    keras.Model(x, block(twice(twice(x))), name="model").save(path)
    io = IOSpec(
        (TensorSpec("x", (None, 64), "float32"),), (TensorSpec("block", (None, 8), "float32"),)
    )
    with KerasRuntime().load(Artifact.create(path, "keras", io)) as session:
        times = session.profile({"x": np.ones((64, 64), "f")}, 3)
    products = [step for step in times.kernels if "MatMul" in step.kernel]
    assert [step.sources for step in products] == [("twice",), ("twice#2",), ("block/last",)]
    assert {step.precision for step in products} == {"float32"}


def test_a_graph_that_cannot_be_frozen_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.framework import convert_to_constants

    def refuse(*given: object, **more: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(convert_to_constants, "convert_variables_to_constants_v2", refuse)
    artifact = convolving(tmp_path / "m.keras")
    with KerasRuntime().load(artifact) as session:
        assert session.infer({"image": np.zeros((1, 6, 6, 3), "f")})["a"].shape == (1, 4)


def test_variables_are_a_handicap() -> None:
    assert KerasRuntime().performance_caveats() == ()
    assert KerasRuntime(freeze=False).performance_caveats() == ("weights not frozen",)


def test_the_graph_is_made_for_the_number_of_samples_in_a_call(tmp_path: Path) -> None:
    import keras

    x = keras.Input((4,), name="x")
    keras.Model(
        x, {"same": keras.layers.Identity()(x), "rows": keras.ops.reshape(x, (-1, 2))}
    ).save(tmp_path / "m.keras")
    outputs = (TensorSpec("same", (None, 4), "float32"), TensorSpec("rows", (None, 2), "float32"))
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), outputs)
    artifact = Artifact.create(tmp_path / "m.keras", "keras", io)
    given = np.arange(12, dtype="float32").reshape(3, 4)
    with KerasRuntime(fixed_batch=3).load(artifact) as session:
        assert [spec.shape for spec in session.io] == [(3, 4), (3, 4), (6, 2)]
        np.testing.assert_array_equal(session.infer({"x": given})["rows"], given.reshape(6, 2))
        with pytest.raises(SpecMismatch, match=r"'x' has shape \(1, 4\), expected"):
            session.infer({"x": given[:1]})
    with KerasRuntime(fixed_batch=0).load(artifact) as session:
        assert session.infer({"x": given[:1]})["rows"].shape == (2, 2)


def test_a_number_of_samples_that_a_model_cannot_have_is_refused_with_advice(
    tmp_path: Path,
) -> None:
    import keras

    x = keras.Input((3,), name="x")
    io = IOSpec(
        (TensorSpec("x", (None, 3), "float32"),), (TensorSpec("reshape", (2, None), "float32"),)
    )
    keras.Model(x, keras.ops.reshape(x, (2, -1))).save(tmp_path / "m.keras")
    with pytest.raises(
        ArtifactError, match=r"m\.keras: Keras cannot make it for 1 samples .*--fixed-batch 0"
    ):
        KerasRuntime(fixed_batch=1).load(Artifact.create(tmp_path / "m.keras", "keras", io))
