from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import StateError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import (
    ClassBalancedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetSampler,
    count_repeats,
)


def data(samples=50):
    return {
        "input": np.arange(samples * 3, dtype=np.float32).reshape(samples, 3),
        "text": list(map(str, range(samples))),
    }


def ids(sequence):
    return [batch["sample_id"].tolist() for batch in sequence]


def test_each_sample_comes_once_with_its_id():
    sequence = ArraySequence(data(), batch=16, sampler=RandomSampler(), seed=3)
    batches = list(sequence)
    assert [len(batch["sample_id"]) for batch in batches] == sequence.sizes() == [16, 16, 16, 2]
    assert len(sequence) == 4
    seen = np.concatenate([batch["sample_id"] for batch in batches])
    assert sorted(seen) == list(range(50))
    assert seen.tolist() != list(range(50))
    for batch in batches:
        assert batch["sample_id"].dtype == np.int64
        assert (batch["input"][:, 0] == 3 * batch["sample_id"]).all()
        assert batch["text"] == list(map(str, batch["sample_id"]))


def test_the_order_follows_from_seed_and_epoch_alone():
    def order(seed, epoch):
        sequence = ArraySequence(data(), batch=16, sampler=RandomSampler(), seed=seed)
        sequence.set_epoch(epoch)
        return ids(sequence)

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(1, 2)
    assert order(1, 1) != order(2, 1)


def test_iterating_twice_gives_the_same_epoch_and_breaking_off_leaves_nothing_behind():
    sequence = ArraySequence(data(), batch=16, sampler=RandomSampler())
    whole = ids(sequence)
    next(iter(sequence))
    assert ids(sequence) == whole


def test_a_batch_belongs_to_whom_it_is_handed():
    features = data()
    sequence = ArraySequence(features, batch=50)
    for batch in sequence:
        batch["input"][:] = -1
        batch["sample_id"][:] = -1
    assert features["input"].min() == 0
    assert ids(sequence) == [list(range(50))]


@pytest.mark.parametrize("done", range(5))
def test_a_state_continues_an_epoch_once(done):
    sequence = ArraySequence(data(), batch=16, sampler=RandomSampler(), seed=3)
    sequence.set_epoch(7)
    whole = ids(sequence)
    batches = iter(sequence)
    for _ in range(done):
        next(batches)
    state = sequence.state_dict()
    other = ArraySequence(data(), batch=16, sampler=RandomSampler(), seed=3)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert ids(other) == whole[done:]
    assert ids(other) == whole


def test_set_epoch_forgets_a_loaded_state():
    sequence = ArraySequence(data(), batch=16)
    next(iter(sequence))
    sequence.load_state_dict(sequence.state_dict())
    sequence.set_epoch(2)
    assert len(ids(sequence)) == 4


def test_a_state_of_another_chain_is_refused_and_nothing_changes():
    sequence = ArraySequence(data(), batch=16)
    before = sequence.state_dict()
    with pytest.raises(StateError, match="Rebatched < ArraySequence"):
        sequence.load_state_dict(sequence.rebatch(3).state_dict())
    with pytest.raises(StateError, match="position"):
        sequence.load_state_dict({"stages": ["ArraySequence"], "epoch": 1, "batches": 0})
    assert sequence.state_dict() == before


def test_ids_may_be_given():
    sequence = ArraySequence({**data(3), "sample_id": np.array([30, 10, 20], np.int32)}, batch=2)
    assert ids(sequence) == [[30, 10], [20]]


def test_the_last_batch_may_be_left_out():
    sequence = ArraySequence(data(), batch=16, drop_last=True)
    assert list(map(len, ids(sequence))) == sequence.sizes() == [16, 16, 16]


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({}, "no features"),
        ({"a": [1, 2], "b": [1]}, "a: 2, b: 1"),
        ({"a": np.float32(1)}, "single value"),
        ({"a": [1, 2], "sample_id": [1, 1]}, "twice"),
        ({"a": [1, 2], "sample_id": [1.0, 2.0]}, "whole numbers"),
    ],
)
def test_features_that_do_not_fit_are_refused(features, said):
    with pytest.raises(ConfigError, match=said):
        ArraySequence(features)


def test_a_batch_has_at_least_one_sample():
    with pytest.raises(ConfigError, match="at least 1"):
        ArraySequence(data(), batch=0)


def test_a_memory_mapped_file_gives_plain_arrays(tmp_path):
    np.save(tmp_path / "x.npy", data()["input"])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for batch in ArraySequence({"input": mapped}, batch=16):
        assert type(batch["input"]) is np.ndarray
        assert batch["input"].flags.writeable


def test_samplers_choose():
    assert ids(ArraySequence(data(4), sampler=SequentialSampler())) == [[0, 1, 2, 3]]
    assert ids(ArraySequence(data(9), sampler=SubsetSampler(indices=(7, 2, 4)))) == [[7, 2, 4]]
    shuffled = ArraySequence(data(9), sampler=SubsetSampler(indices=tuple(range(8)), shuffle=True))
    assert sorted(ids(shuffled)[0]) == list(range(8))
    assert ids(shuffled) != [list(range(8))]
    some = ArraySequence(data(9), sampler=RandomSampler(samples=4))
    assert len(set(ids(some)[0])) == 4 == sum(some.sizes())


def test_a_subset_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no sample 9; there are 9"):
        list(ArraySequence(data(9), sampler=SubsetSampler(indices=(0, 9))))
    with pytest.raises(ConfigError, match="twice"):
        SubsetSampler(indices=(1, 1))


def test_a_balanced_sampler_gives_each_class_as_often():
    target = np.array([0] * 90 + [1] * 9 + [2] * 2)
    sequence = ArraySequence(
        {"target": target, "input": np.zeros(101)},
        batch=32,
        sampler=ClassBalancedSampler(by="target"),
        seed=1,
    )
    batches = list(sequence)
    counts = np.bincount(np.concatenate([batch["target"] for batch in batches]))
    assert counts.sum() == 101
    assert counts.max() - counts.min() <= 1
    drawn = np.concatenate([batch["sample_id"] for batch in batches])
    small = np.bincount(drawn, minlength=101)[90:99]
    assert small.min() >= 3
    assert small.max() - small.min() <= 1
    # Repeated samples can be told apart, so that they are augmented differently.
    repeats = np.concatenate([batch["sample_repeat"] for batch in batches])
    assert len(set(zip(drawn.tolist(), repeats.tolist(), strict=True))) == 101


def test_a_balanced_sampler_names_what_it_cannot_use():
    with pytest.raises(ConfigError, match="no feature 'label'"):
        list(ArraySequence(data(), sampler=ClassBalancedSampler(by="label")))
    with pytest.raises(ConfigError, match=r"shape \(50, 3\)"):
        list(ArraySequence(data(), sampler=ClassBalancedSampler(by="input")))


def test_repeats_count_what_came_before():
    assert count_repeats(np.array([5, 1, 5, 5, 1])).tolist() == [0, 0, 1, 2, 1]
