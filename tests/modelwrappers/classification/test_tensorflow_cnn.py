from __future__ import annotations

import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.classification.tensorflow_cnn import TensorFlowDigitsCNN
from nnpipe.testing.modelwrapper import ModelWrapperContract

pytest.importorskip("tensorflow")


class TestDigitsCNN(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return TensorFlowDigitsCNN()

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.8, validation_fraction=0.2)
