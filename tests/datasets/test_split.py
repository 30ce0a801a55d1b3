"""Splits are seeded, stratified, and let nothing leak."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.datasets._split import (
    TEST,
    TRAIN,
    VALIDATION,
    compute_array_groups,
    compute_file_groups,
    compute_random_keys,
    draw,
    split_samples,
)

labels = st.lists(st.integers(0, 5), max_size=200).map(lambda values: np.array(values, np.int64))
fractions = st.floats(0, 1)
seeds = st.integers(0, 2**32)


def split(strata, official=None, groups=None, validation_fraction=0.1, test_fraction=0.2, seed=0):
    alone = np.arange(len(strata))
    return split_samples(
        strata,
        official,
        lambda: alone if groups is None else groups,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        seed=seed,
    )


@given(labels, fractions, fractions, seeds)
def test_splits_are_disjoint_and_hold_everything(strata, validation, test, seed):
    parts = split(strata, validation_fraction=validation, test_fraction=test, seed=seed)
    together = np.concatenate(list(parts.values()))
    np.testing.assert_array_equal(np.sort(together), np.arange(len(strata)))
    assert list(parts) == ["train", "validation", "test"]
    assert all(np.all(np.diff(part) > 0) for part in parts.values())


@given(labels, fractions, seeds)
def test_every_class_keeps_its_share_within_one_sample(strata, fraction, seed):
    chosen = draw(strata, np.arange(len(strata)), fraction, seed)
    assert chosen.sum() == round(len(strata) * fraction)
    for kind in np.unique(strata):
        mine = strata == kind
        assert abs(chosen[mine].sum() - fraction * mine.sum()) < 1 + 1e-6


@given(labels, fractions, fractions, seeds)
def test_the_same_seed_gives_the_same_split_and_other_seeds_others(strata, validation, test, seed):
    first, second = (
        split(strata, validation_fraction=validation, test_fraction=test, seed=seed)
        for _ in range(2)
    )
    for name, part in first.items():
        np.testing.assert_array_equal(part, second[name])


def test_another_seed_gives_another_split():
    strata = np.zeros(100, np.int64)
    tests = {tuple(split(strata, seed=seed)["test"]) for seed in range(10)}
    assert len(tests) == 10
    # Neither is the validation split a shadow of the test split.
    assert all(
        set(split(strata, seed=s)["validation"]).isdisjoint(split(strata, seed=s)["test"])
        for s in range(10)
    )


def test_the_split_of_a_seed_never_changes():
    # Other people's results rest on it: it may depend on no numpy version and on no change here.
    parts = split(np.arange(1000) % 7, seed=42)
    digest = hashlib.sha256(
        b"".join(part.astype("<i8").tobytes() for part in parts.values())
    ).hexdigest()
    assert digest == "af2b1bf4d8601e0d8da370eade78792e64bab2f5dc471fb78ad4b40d37679bfd"


def test_keys_are_those_of_the_published_splitmix64():
    # The first values of the reference code for the seed 0.
    assert [hex(key) for key in compute_random_keys(np.arange(3, dtype=np.uint64), 0)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_every_sample_is_as_likely_to_be_drawn():
    strata = np.zeros(50, np.int64)
    counts = sum(draw(strata, np.arange(50), 0.2, seed).astype(int) for seed in range(2000))
    # Binomial with a mean of 400 and a deviation of 18; six deviations are one in a billion.
    assert np.all(np.abs(counts - 400) < 6 * 18)


@given(labels, st.integers(1, 40), fractions, fractions, seeds)
def test_like_samples_stay_together(strata, kinds, validation, test, seed):
    groups = np.random.default_rng(seed).integers(0, kinds, len(strata))
    parts = split(
        strata, groups=groups, validation_fraction=validation, test_fraction=test, seed=seed
    )
    homes = [set(groups[part]) for part in parts.values()]
    assert sum(map(len, homes)) == len(set.union(*homes))


@given(labels, fractions, seeds)
def test_large_groups_never_take_more_than_the_share(strata, fraction, seed):
    groups = np.arange(len(strata)) // 3
    chosen = draw(np.zeros(len(strata), np.int64), groups, fraction, seed)
    assert round(len(strata) * fraction) - 3 < chosen.sum() <= round(len(strata) * fraction)


@settings(max_examples=examples(50))
@given(labels, seeds, st.data())
def test_a_published_split_stays_as_it_is(strata, seed, data):
    official = np.array(
        data.draw(
            st.lists(st.sampled_from([TRAIN, TEST]), min_size=len(strata), max_size=len(strata))
        ),
        np.int8,
    )
    parts = split(strata, official, seed=seed)
    if np.any(official == TEST):
        np.testing.assert_array_equal(parts["test"], np.flatnonzero(official == TEST))
        assert len(parts["validation"]) == round(0.1 * np.sum(official == TRAIN))
    assert set(parts["validation"]) <= set(np.flatnonzero(official == TRAIN))


def test_a_published_validation_split_is_not_drawn_again():
    official = np.array([TRAIN] * 50 + [VALIDATION] * 10 + [TEST] * 20, np.int8)
    parts = split(np.zeros(80, np.int64), official)
    assert [len(part) for part in parts.values()] == [50, 10, 20]


def test_nothing_is_read_for_groups_when_nothing_is_drawn():
    official = np.array([TRAIN, VALIDATION, TEST], np.int8)

    def fail():
        raise AssertionError("asked for groups")

    for kind, validation, test in ((official, 0.5, 0.5), (None, 0.0, 0.0)):
        split_samples(
            np.zeros(3, np.int64),
            kind,
            fail,
            validation_fraction=validation,
            test_fraction=test,
            seed=0,
        )


def test_nothing_is_read_for_groups_when_all_samples_are_for_testing():
    def groups():
        raise AssertionError("the samples are read")

    found = split_samples(
        np.arange(9) % 2, None, groups, validation_fraction=0.1, test_fraction=1.0, seed=0
    )
    assert {name: len(indices) for name, indices in found.items()} == {
        "train": 0,
        "validation": 0,
        "test": 9,
    }


def test_one_picture_under_two_labels_does_not_leak():
    strata = np.array([0, 1] * 20)
    groups = np.arange(40) // 2
    parts = split(strata, groups=groups, test_fraction=0.5, validation_fraction=0.5)
    homes = [set(groups[part]) for part in parts.values()]
    assert sum(map(len, homes)) == 20
    assert all(homes)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_arrays_are_alike_when_all_their_bytes_are(pairs):
    values = np.array(pairs, np.int16)
    groups = compute_array_groups([values[:, :1], values[:, 1].astype(np.float32)])
    for i, first in enumerate(pairs):
        for j, second in enumerate(pairs):
            assert (groups[i] == groups[j]) == (first == second)


def test_files_are_alike_when_their_bytes_are(tmp_path, monkeypatch):
    contents = [b"a", b"b", b"a", b"longer", b"", b""]
    paths = [tmp_path / str(i) for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    groups = compute_file_groups(paths)
    assert [list(groups).index(group) for group in groups] == [0, 1, 0, 3, 4, 4]
    monkeypatch.setattr(
        "nnpipe.datasets._split._compute_digest",
        lambda path: pytest.fail(f"read {path} for no reason"),
    )
    compute_file_groups([paths[0], paths[3], paths[4]])
