"""Providers give every sample once an epoch, in an order that stops and restarts do not change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.providers import DataProvider
from nnpipe.experiment.readers.npz import NpzReader

SAMPLES = 23


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "a.npz"
    np.savez(path, x=np.arange(SAMPLES) * 10, name=np.array([f"s{n}" for n in range(SAMPLES)]))
    return NpzReader(path=path)


def ids(batches):
    return [sample for batch in batches for sample in batch["sample_id"].tolist()]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_an_epoch_has_each_sample_once(reader, shuffle, size):
    provider = DataProvider(reader, batch_size=size, shuffle=shuffle)
    first, second = list(provider), list(provider)
    assert len(first) == len(provider) == -(-SAMPLES // size)
    assert sorted(ids(first)) == sorted(ids(second)) == list(range(SAMPLES))
    assert (ids(first) == ids(second)) is not shuffle
    for batch in first:
        assert np.array_equal(batch["x"], 10 * batch["sample_id"])
        assert batch["name"].tolist() == [f"s{n}" for n in batch["sample_id"]]


@given(stop=st.integers(0, 17), size=st.integers(1, 9))
def test_a_restart_changes_nothing(reader, stop, size):
    whole, halves, rest = (DataProvider(reader, batch_size=size, seed=3) for _ in range(3))
    wanted = ids(whole() for _ in range(20))
    begun = ids(halves() for _ in range(stop))
    rest.load_state_dict(halves.state_dict())
    assert begun + ids(rest() for _ in range(20 - stop)) == wanted


def test_an_epoch_is_gone_on_with_after_a_break(reader):
    provider, other = DataProvider(reader, batch_size=4), DataProvider(reader, batch_size=4)
    begun = list(itertools.islice(iter(provider), 2))
    other.load_state_dict(provider.state_dict())
    assert sorted(ids(begun) + ids(other)) == list(range(SAMPLES))
    assert other.state.epoch == 1


def test_parts_have_no_sample_in_common(reader):
    train, test = DataProvider(reader, part=(0, 0.8)), DataProvider(reader, part=(0.8, 1))
    assert sorted(ids(train) + ids(test)) == list(range(SAMPLES))
    assert len(test.samples) == round(0.2 * SAMPLES)
    assert not np.array_equal(DataProvider(reader, part=(0, 0.8), seed=1).samples, train.samples)


def test_columns_are_chosen_and_misspelt_ones_told(reader):
    assert set(DataProvider(reader, columns=["x"])()) == {"x", "sample_id"}
    with pytest.raises(ConfigError, match=r"has no column 'nam'; did you mean name\?"):
        DataProvider(reader, columns=["nam"])()
    with pytest.raises(ConfigError, match="batch_size"):
        DataProvider(reader, batch_size=0)
    with pytest.raises(ConfigError, match="part"):
        DataProvider(reader, part=(0.5, 0.5))
    with pytest.raises(ConfigError, match="no samples"):
        DataProvider(reader, part=(0, 0.001))()


def test_a_configuration_builds_one(reader):
    made = Configuration(
        {
            "data": {
                "class": "nnpipe.experiment.providers.DataProvider",
                "arguments": {
                    "reader": {
                        "class": "nnpipe.experiment.readers.npz.NpzReader",
                        "arguments": {"path": str(reader.path)},
                    },
                    "batch_size": 3,
                },
            }
        }
    ).build()
    assert len(made["data"]()["sample_id"]) == 3
