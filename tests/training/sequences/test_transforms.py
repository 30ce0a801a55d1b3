from __future__ import annotations

import pickle

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batch_work import TransformError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.transforms import (
    AddNoise,
    Compose,
    Jointly,
    RandomCrop,
    RandomErase,
    RandomFlip,
    RandomQuarterTurn,
    Sometimes,
)

BOTH = ("input", "mask")


def sample(height=6, width=6):
    image = np.arange(1, height * width + 1, dtype=np.float32).reshape(height, width)
    return {"input": np.stack([image, 100 + image]), "mask": image.astype(np.uint8), "sample_id": 3}


def draws(transform, number=64, **more):
    return [transform(sample(**more), np.random.default_rng(seed)) for seed in range(number)]


def test_noise_on_integers_stays_within_their_type():
    found = AddNoise(deviation=40)(
        {"input": np.full((100, 100), 250, np.uint8)}, np.random.default_rng(0)
    )["input"]
    assert found.dtype == np.uint8
    assert (found == 255).mean() > 0.3
    assert np.std(found.astype(float)) > 10


@pytest.mark.parametrize(
    "transform",
    [
        RandomFlip(features=BOTH, axes=(-1, -2)),
        RandomQuarterTurn(features=BOTH),
        RandomCrop(features=BOTH, size=(3, 4)),
        RandomCrop(features=BOTH, padding=2),
        RandomErase(features=BOTH, size=(3, 2)),
        Jointly(
            function=lambda array, random: np.roll(array, random.integers(6), -1), features=BOTH
        ),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_image_and_mask_change_alike(transform):
    before = sample()
    found = draws(transform)
    for after in found:
        assert (after["input"][0] == after["mask"]).all()
        assert after["input"].flags.c_contiguous
        assert (after["input"].dtype, after["mask"].dtype) == (np.float32, np.uint8)
    assert len({after["mask"].tobytes() for after in found}) > 1
    assert (sample()["mask"] == before["mask"]).all()


def test_a_flip_is_a_flip():
    mirrored = sample()["mask"][:, ::-1]
    found = draws(RandomFlip(features=("mask",)), 400)
    flipped = sum((after["mask"] == mirrored).all() for after in found)
    assert flipped + sum((after["mask"] == sample()["mask"]).all() for after in found) == 400
    assert 150 < flipped < 250


def test_a_crop_reaches_all_places_and_no_other():
    found = {
        tuple(after["mask"].ravel())
        for after in draws(RandomCrop(features=("mask",), size=(5, 5)), 200)
    }
    mask = sample()["mask"]
    assert found == {tuple(mask[r : r + 5, c : c + 5].ravel()) for r in range(2) for c in range(2)}


def test_padding_is_filled():
    found = draws(RandomCrop(features=("mask",), padding=6, fill=255), 50)
    assert all(after["mask"].shape == (6, 6) for after in found)
    assert any((after["mask"] == 255).any() for after in found)


def test_erasing_covers_at_most_its_size():
    counts = [
        int((after["mask"] == 0).sum())
        for after in draws(RandomErase(features=("mask",), size=(3, 2)))
    ]
    assert max(counts) == 6
    assert min(counts) >= 1


def test_noise_has_its_deviation_and_keeps_the_type():
    noisy = AddNoise(deviation=0.5)(
        {"input": np.zeros((100, 100), np.float32)}, np.random.default_rng(0)
    )["input"]
    assert noisy.dtype == np.float32
    assert abs(noisy.std() - 0.5) < 0.02
    assert abs(noisy.mean()) < 0.02


def test_sometimes_is_sometimes():
    transform = Sometimes(transform=RandomErase(features=("mask",), size=(2, 2)), probability=0.25)
    changed = sum((after["mask"] == 0).any() for after in draws(transform, 400))
    assert 60 < changed < 140


def test_transforms_travel_and_go_into_a_map():
    transform = Compose(
        transforms=(RandomCrop(features=BOTH, padding=1), RandomFlip(features=BOTH), AddNoise())
    )
    assert pickle.loads(pickle.dumps(transform)) == transform
    one = sample()
    source = ArraySequence(
        {"input": one["input"][None].repeat(5, 0), "mask": one["mask"][None].repeat(5, 0)}, batch=2
    )
    first = list(source.map(transform))
    with source.map(transform, workers=1) as other:
        for left, right in zip(first, other, strict=True):
            assert (left["input"] == right["input"]).all()
            assert (left["mask"] == right["mask"]).all()


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (RandomFlip(features=("image",)), "no 'image'; it has input, mask"),
        (RandomCrop(size=(7, 7)), "cannot cut 7 x 7 out of 6 x 6"),
    ],
)
def test_what_does_not_fit_is_told(transform, said):
    with pytest.raises(ConfigError, match=said):
        transform(sample(), np.random.default_rng(0))


def test_sizes_that_differ_are_refused_with_the_sample():
    source = ArraySequence({"input": np.zeros((1, 4, 4)), "mask": np.zeros((1, 4, 5))})
    with pytest.raises(TransformError, match=r"sample 0 .*one height and width"):
        list(source.map(RandomFlip(features=BOTH)))
