from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.classification.tensorflow_cnn import TensorFlowDigitsCNN
from nnpipe.runtimes.keras import KerasRuntime
from nnpipe.testing.runtime import RuntimeContract

pytest.importorskip("tensorflow")


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
