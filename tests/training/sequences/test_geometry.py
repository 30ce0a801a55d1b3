"""Pictures, masks, boxes and points that change together; colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.picture_transforms import (
    ColourJitter,
    RandomAffine,
    RandomResizedCrop,
    Resize,
)
from nnpipe.training.sequences.transforms import RandomCrop, RandomFlip, RandomQuarterTurn

WITH: dict[str, Any] = {"boxes": ("boxes",), "of_boxes": ("kinds",), "keypoints": ("points",)}
JOINT = [
    RandomFlip(features=("input", "mask"), axes=(-1, -2), **WITH),
    RandomQuarterTurn(features=("input", "mask"), **WITH),
    RandomCrop(features=("input", "mask"), size=(24, 20), padding=4, **WITH),
    Resize(masks=("mask",), size=(48, 16), **WITH),
    RandomResizedCrop(masks=("mask",), size=(40, 40), scale=(0.4, 1.0), **WITH),
    RandomAffine(
        masks=("mask",), degrees=40, translate=(0.1, 0.1), scale=(0.8, 1.5), shear=10, **WITH
    ),
]


def scene(random: np.random.Generator) -> dict[str, Any]:
    """A rectangle in a picture and its mask, its box, its middle as a point, and a box without
    anything in it.
    """
    top, left = random.integers(2, 12, 2)
    height, width = random.integers(8, 14, 2)
    mask = np.zeros((30, 28), np.uint8)
    mask[top : top + height, left : left + width] = 1
    box = [left, top, left + width, top + height]
    return {
        "input": np.stack([mask.astype(np.float32)] * 3),
        "mask": mask,
        "boxes": np.array([box, [0, 0, 1, 1]], np.float32),
        "kinds": np.array([7, 9]),
        "points": np.array([[left + width / 2, top + height / 2, 2]], np.float32),
        "sample_id": 1,
    }


@pytest.mark.parametrize("transform", JOINT, ids=lambda transform: type(transform).__name__)
def test_box_and_point_stay_at_what_they_mark(transform: Any) -> None:
    seen = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        found = transform(scene(random), random)
        rows, columns = np.nonzero(found["mask"])
        if 7 not in found["kinds"]:
            continue
        seen += 1
        assert len(found["boxes"]) == len(found["kinds"])
        left, top, right, bottom = found["boxes"][found["kinds"].tolist().index(7)]
        height, width = found["mask"].shape
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        # The box holds the rectangle, as the smallest one unless that was turned by a part of a
        # right angle.
        assert left - 1 <= columns.min()
        assert columns.max() + 1 <= right + 1
        assert top - 1 <= rows.min()
        assert rows.max() + 1 <= bottom + 1
        if not isinstance(transform, RandomAffine):
            assert (columns.min() - left, right - columns.max() - 1) == pytest.approx(
                (0, 0), abs=1.01
            )
            assert (rows.min() - top, bottom - rows.max() - 1) == pytest.approx((0, 0), abs=1.01)
        x, y, visible = found["points"][0]
        assert visible == (2 if 0 <= x < width and 0 <= y < height else 0)
        if visible and found["mask"].sum() > 30:
            assert found["mask"][int(y), int(x)] == 1
        both = found["mask"] if found["input"].shape[-2:] == found["mask"].shape else None
        assert both is not None
        assert ((found["input"][0] > 0.99) <= (found["mask"] == 1)).mean() > 0.9
    assert seen > 40


@pytest.mark.parametrize("transform", JOINT, ids=lambda transform: type(transform).__name__)
def test_what_is_drawn_follows_from_the_generator(transform: Any) -> None:
    one, two = (
        transform(scene(np.random.default_rng(3)), np.random.default_rng(5)) for _ in range(2)
    )
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_mask_keeps_its_numbers() -> None:
    sample = scene(np.random.default_rng(0))
    sample["mask"] = sample["mask"] * 200
    found = RandomAffine(masks=("mask",), degrees=30, mask_fill=255)(
        sample, np.random.default_rng(3)
    )
    assert set(np.unique(found["mask"])) == {0, 200, 255}


def test_boxes_and_keypoints_may_be_none() -> None:
    sample = scene(np.random.default_rng(0)) | {
        "boxes": np.zeros((0, 4), np.float32),
        "kinds": np.zeros(0, np.int64),
    }
    found = RandomAffine(masks=("mask",), degrees=30, **WITH)(sample, np.random.default_rng(1))
    assert (found["boxes"].shape, found["kinds"].shape) == ((0, 4), (0,))
    with pytest.raises(ConfigError, match="boxes"):
        RandomFlip(boxes=("boxes",))(
            scene(np.random.default_rng(0)) | {"boxes": np.zeros(3)}, np.random.default_rng(0)
        )


def test_without_a_change_an_affine_map_gives_the_picture_itself() -> None:
    sample = {"input": np.random.default_rng(0).random((2, 9, 7), np.float32), "sample_id": 0}
    before = sample["input"].copy()
    np.testing.assert_allclose(
        RandomAffine()(sample, np.random.default_rng(0))["input"], before, atol=1e-6
    )


def test_affine_maps_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transform = RandomAffine(degrees=50, translate=(0.2, 0.1), scale=(0.7, 1.4), shear=20)
    picture = np.random.default_rng(0).random((3, 20, 20), np.float32)
    random = np.random.default_rng(4)
    drawn = transform._draw(np.random.default_rng(4), 20, 20)
    found = transform({"input": picture.copy(), "sample_id": 0}, random)["input"]
    whole = np.linalg.inv(np.vstack([drawn, [0, 0, 1]]))
    scale = np.array([[10, 0, 10], [0, 10, 10], [0, 0, 1.0]])  # from -1 to 1 into pixels
    theta = torch.from_numpy((np.linalg.inv(scale) @ whole @ scale)[None, :2]).float()
    grid = torch.nn.functional.affine_grid(theta, (1, 3, 20, 20), align_corners=False)
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(picture)[None], grid, align_corners=False
    )[0]
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)


def test_wrong_ranges_are_refused() -> None:
    with pytest.raises(ConfigError, match="scale"):
        RandomAffine(scale=(0, 1))
    with pytest.raises(ConfigError, match="size"):
        Resize(size=(0, 3))
    with pytest.raises(ConfigError, match="scale"):
        RandomResizedCrop(size=(3, 3), scale=(0.5, 2))
    with pytest.raises(ConfigError, match="hue"):
        ColourJitter(hue=0.6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_colours_change_within_their_range(dtype: Any) -> None:
    top = 255 if dtype is np.uint8 else 1
    picture = (np.random.default_rng(0).random((3, 8, 8)) * top).astype(dtype)
    jitter = ColourJitter(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.2)
    found = [
        jitter({"input": picture.copy()}, np.random.default_rng(seed))["input"]
        for seed in range(20)
    ]
    assert all(array.dtype == dtype and array.min() >= 0 and array.max() <= top for array in found)
    assert len({array.tobytes() for array in found}) == 20
    same = ColourJitter()({"input": picture.copy()}, np.random.default_rng(0))["input"]
    np.testing.assert_allclose(same, picture, atol=1e-6)


def test_grey_has_neither_saturation_nor_hue() -> None:
    grey = np.repeat(np.random.default_rng(0).random((1, 8, 8), np.float32), 3, 0)
    found = ColourJitter(saturation=1.0, hue=0.5)({"input": grey.copy()}, np.random.default_rng(2))[
        "input"
    ]
    np.testing.assert_allclose(found, grey, atol=0.01)
