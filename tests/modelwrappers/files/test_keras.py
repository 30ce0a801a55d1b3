"""Keras files as models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.frameworks.keras import suppress_copy_warning
from nnpipe.modelwrappers.classification.small_cnn import TensorFlowDigitsCNN
from nnpipe.modelwrappers.files.keras import KerasModel
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("tensorflow")
pytest.importorskip("h5py", reason="h5py is not installed")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network in a .keras archive."""
    path = tmp_path_factory.mktemp("source") / "digits.keras"
    TensorFlowDigitsCNN().open().save(path)
    return path


@pytest.mark.slow
class TestKerasModel(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, digits: Path) -> ModelWrapper:
        return KerasModel(model_path=digits, scale=16.0, layout="nhwc", class_count=10)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


def test_both_kinds_of_files_hold_the_same_model(digits: Path, tmp_path: Path) -> None:
    model = KerasModel(model_path=digits).open()
    old = tmp_path / "digits.h5"
    with suppress_copy_warning():
        model.native.save(old)
    batch: Batch = {"image": np.random.default_rng(0).random((3, 8, 8, 1), np.float32)}
    with model.session() as one, KerasModel(model_path=old).open().session() as other:
        np.testing.assert_array_equal(one.infer(batch)["scores"], other.infer(batch)["scores"])
