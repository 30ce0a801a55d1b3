"""A package outside nnpipe adds a data set, a model, a compiler and a runtime by subclassing
public classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from acme_nn.classifier import AcmeClassifier
from acme_nn.network import forward
from acme_nn.packer import AcmePacker
from acme_nn.runtime import AcmeRuntime
from acme_nn.spirals import SpiralsDataset

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch
from nnpipe.testing.compiler import ModelCompilerContract
from nnpipe.testing.dataset import DatasetContract
from nnpipe.testing.modelwrapper import ModelWrapperContract
from nnpipe.testing.runtime import RuntimeContract


class TestSpiralsDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SpiralsDataset(num_samples=60, turns=1.5, noise=0.1, data_seed=3, split_seed=1)


class TestAcmeClassifier(ModelWrapperContract):
    learning_rate = 0.01

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return AcmeClassifier(width=12)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SpiralsDataset(num_samples=200, turns=0.5)


@pytest.fixture
def exported(tmp_path: Path) -> Artifact:
    return (
        AcmeClassifier(num_features=5, num_classes=3)
        .open()
        .export(tmp_path / "exported" / "model.npz", "acme-npz")
    )


class TestAcmePacker(ModelCompilerContract):
    tolerance = 0.1
    agreement = 0.9

    @pytest.fixture(params=["int8", "float16"])
    def compiler(self, request: pytest.FixtureRequest) -> ModelCompiler:
        return AcmePacker(target=request.param, inference_input_type="int8")

    @pytest.fixture
    def artifact(self, exported: Artifact) -> Artifact:
        return exported

    @pytest.fixture
    def runtime(self) -> Runtime:
        return AcmeRuntime()

    @pytest.fixture
    def batches(self) -> list[Batch]:
        points = np.random.default_rng(0).uniform(-2, 2, (20, 1, 5)).astype(np.float32)
        return [{"features": point} for point in points]

    @pytest.fixture
    def expected(self, batches: list[Batch]) -> list[Batch]:
        parameters = AcmeClassifier(num_features=5, num_classes=3).open().get_weights()
        return [{"scores": forward(parameters, batch["features"])[1]} for batch in batches]


class TestAcmeRuntimeUnpacked(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return AcmeRuntime(precision="float64")

    @pytest.fixture
    def artifact(self, exported: Artifact) -> Artifact:
        return exported

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        parameters = AcmeClassifier(num_features=5, num_classes=3).open().get_weights()
        return {"scores": forward(parameters, np.float64(batch["features"]))[1].astype(np.float32)}


class TestAcmeRuntimePacked(RuntimeContract):
    expected_atol = 0.05

    @pytest.fixture
    def runtime(self) -> Runtime:
        return AcmeRuntime()

    @pytest.fixture
    def artifact(self, exported: Artifact, tmp_path: Path) -> Artifact:
        return AcmePacker(target="int8").compile(exported, tmp_path / "packed" / "model.acme")

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        parameters = AcmeClassifier(num_features=5, num_classes=3).open().get_weights()
        return {"scores": forward(parameters, batch["features"])[1]}
