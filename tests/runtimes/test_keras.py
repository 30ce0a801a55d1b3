from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.classification.tensorflow_cnn import TensorFlowDigitsCNN
from nnpipe.runtimes.keras import KerasRuntime
from nnpipe.testing.runtime import RuntimeContract

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.fixture(scope="module")
def wrapper() -> TensorFlowDigitsCNN:
    return TensorFlowDigitsCNN()


class TestKerasRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return KerasRuntime()

    @pytest.fixture
    def artifact(self, wrapper: TensorFlowDigitsCNN, tmp_path: Path) -> Artifact:
        return wrapper.export(tmp_path / "model" / "digits.keras", "keras")

    @pytest.fixture
    def expected(self, wrapper: TensorFlowDigitsCNN, batch: Batch) -> Batch:
        return {"scores": np.asarray(wrapper.native(batch["image"]).numpy())}


def test_a_model_with_a_lambda_is_not_run(tmp_path: Path) -> None:
    import keras

    x = keras.Input((4,), name="x")
    path = tmp_path / "lambda.keras"
    keras.Model(x, keras.layers.Lambda(lambda v: v * 2, name="y", output_shape=(4,))(x)).save(path)
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    with pytest.raises(ArtifactError, match=r"lambda\.keras: holds a Lambda layer \('y'\)"):
        KerasRuntime().load(Artifact.of(path, "keras", io))


def test_a_model_saved_by_others_runs_under_the_names_that_its_description_gives(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Flatten()])
    model.save(tmp_path / "theirs.keras")
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    batch = {"x": np.arange(8, dtype="float32").reshape(2, 4)}
    with KerasRuntime().load(Artifact.of(tmp_path / "theirs.keras", "keras", io)) as session:
        np.testing.assert_array_equal(session.infer(batch)["y"], batch["x"])
