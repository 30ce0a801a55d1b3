"""A data set whose samples go through a user's function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.plugin import PluginDataset
from nnpipe.testing.dataset import DatasetContract

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_plugin.py"


class TestPluginDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self):
        return PluginDataset(
            wrapped="DigitsDataset", plugin=str(EXAMPLE), split_seed=3, test_fraction=0.25
        )


@pytest.fixture
def around(tmp_path):
    def around(body: str) -> PluginDataset:
        (tmp_path / "mine.py").write_text(f"def process_dataset(x, y):\n    return {body}\n")
        return PluginDataset(
            wrapped="DigitsDataset", plugin=str(tmp_path / "mine.py"), split_seed=5
        )

    return around


def test_samples_are_what_the_plugin_makes_of_them(around):
    dataset, digits = around("(x[:, ::2] / 16).astype('float32'), y"), DigitsDataset(split_seed=5)
    assert dataset.spec.inputs[0].shape == (None, 4, 8, 1)
    assert dataset.spec.inputs[0].dtype == "float32"
    np.testing.assert_array_equal(dataset.split("test"), digits.split("test"))
    inputs, truth = dataset.read(np.arange(9))
    np.testing.assert_allclose(
        inputs["image"], digits.read(np.arange(9))[0]["image"][:, ::2] / 16, rtol=1e-6
    )
    np.testing.assert_array_equal(truth["label"], digits.read(np.arange(9))[1]["label"])


@pytest.mark.parametrize("body", ["x[:1], y", "x, y[:2]", "x, None", "x, 3"])
def test_other_counts_of_samples_are_told(around, body):
    with pytest.raises(DatasetError, match=r"mine\.py: process_dataset made .* of 9 samples"):
        around(body).read(np.arange(9))


def test_problems_are_told_when_it_is_made(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit\ndef process_dataset(x): pass\n")
    with pytest.raises(
        ConfigError, match=r"process_dataset: expected def process_dataset\(x, y\), found \(x\)"
    ):
        PluginDataset(wrapped="DigitsDataset", plugin=str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [("{", "not JSON"), ("[]", "JSON object"), ('{"nonsense": 1}', "no argument")],
)
def test_arguments_of_the_other_data_set_are_checked(arguments, told):
    with pytest.raises(ConfigError, match=told):
        PluginDataset(wrapped="DigitsDataset", plugin=str(EXAMPLE), wrapped_arguments=arguments)
    with pytest.raises(ConfigError, match="cannot wrap another"):
        PluginDataset(wrapped="PluginDataset", plugin=str(EXAMPLE))
