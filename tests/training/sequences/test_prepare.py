"""What a file can name as the preparation of inputs and as weights of classes."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import transform_from
from nnpipe.datasets.synthetic import SyntheticTabularDataset
from nnpipe.training.outputs.classification import BalancedWeights
from nnpipe.training.sequences.dataset import ApplyDeclaredTransforms, ApplyTransforms
from nnpipe.transforms.log_mel import MFCC

TABLE = SyntheticTabularDataset(num_samples=60)


def test_transforms_change_their_inputs_and_no_others() -> None:
    mfcc, inputs = MFCC(), {"sound": np.ones((2, 4000), np.float32), "other": np.ones(2)}
    found = ApplyTransforms(transforms={"sound": mfcc})(inputs)
    np.testing.assert_array_equal(found["sound"], mfcc.apply(inputs["sound"]))
    assert found["other"] is inputs["other"]
    with pytest.raises(ConfigError, match="no input 'voice' to transform; there are sound, other"):
        ApplyTransforms(transforms={"voice": mfcc})(inputs)


def test_what_a_data_set_declares_is_applied() -> None:
    inputs, _ = TABLE.read(np.arange(5))
    expected = transform_from(TABLE.spec.transforms["features"]).apply(inputs["features"])
    np.testing.assert_array_equal(
        ApplyDeclaredTransforms(dataset=TABLE)(inputs)["features"], expected
    )


def test_classes_are_balanced_by_the_training_samples() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    _, truth = TABLE.read(TABLE.split("train"))
    counts = np.bincount(truth["label"], minlength=2)
    expected = counts.sum() / (2 * counts)
    np.testing.assert_allclose(BalancedWeights(dataset=TABLE).weights, expected, rtol=1e-6)
    with pytest.raises(ConfigError, match="target names 'kind'"):
        _ = BalancedWeights(dataset=TABLE, target="kind").weights
