"""Transforms of torchvision and Albumentations: boxes stay at what they mark, and samples are
the same again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision_for_cpu import torchvision

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._content_digest import describe_callable
from nnpipe.training.sequences.library_transforms import (
    AlbumentationsTransform,
    TorchvisionTransform,
)

sys.path.append(str(Path(__file__).parent))
from test_geometry import scene


def of_torchvision(degrees: float = 30) -> TorchvisionTransform:
    torchvision()
    from torchvision.transforms import v2

    steps = [
        v2.RandomHorizontalFlip(),
        v2.RandomAffine(degrees, translate=(0.2, 0.2)),
        v2.ColorJitter(0.3),
    ]
    return TorchvisionTransform(
        transform=v2.Compose(
            [*steps, v2.SanitizeBoundingBoxes(labels_getter=lambda given: given["labels"])]
        ),
        masks=("mask",),
        boxes=("boxes",),
        labels=("kinds",),
    )


def of_albumentations(degrees: float = 30) -> AlbumentationsTransform:
    albumentations = pytest.importorskip("albumentations", reason="Albumentations is not installed")
    steps = [
        albumentations.HorizontalFlip(),
        albumentations.Affine(rotate=(-degrees, degrees), p=1),
        albumentations.GaussNoise(),
    ]
    boxes = albumentations.BboxParams(format="pascal_voc", label_fields=["kinds"])
    return AlbumentationsTransform(
        transform=albumentations.Compose(steps, bbox_params=boxes),
        masks=("mask",),
        boxes="boxes",
        labels=("kinds",),
    )


@pytest.fixture(params=[of_torchvision, of_albumentations], ids=["torchvision", "albumentations"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.filterwarnings("ignore")
def test_boxes_and_masks_move_with_the_picture(make: Any) -> None:
    transform = make()
    for seed in range(20):
        random = np.random.default_rng(seed)
        found = transform(scene(random), random)
        assert (found["input"].shape, found["mask"].shape, found["sample_id"]) == (
            (3, 30, 28),
            (30, 28),
            1,
        )
        assert len(found["kinds"]) == len(found["boxes"])
        if 7 in found["kinds"]:
            left, top, right, bottom = found["boxes"][found["kinds"].tolist().index(7)]
            rows, columns = np.nonzero(found["mask"])
            assert left - 1.5 <= columns.min() <= columns.max() + 1 <= right + 1.5
            assert top - 1.5 <= rows.min() <= rows.max() + 1 <= bottom + 1.5


@pytest.mark.filterwarnings("ignore")
def test_a_sample_is_the_same_again_and_others_notice_nothing(make: Any) -> None:
    before = np.random.get_state()[1].tolist()
    one, two = (make()(scene(np.random.default_rng(1)), np.random.default_rng(2)) for _ in range(2))
    other = make()(scene(np.random.default_rng(1)), np.random.default_rng(3))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["input"], other["input"])
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.filterwarnings("ignore")
def test_other_arguments_are_another_training(make: Any) -> None:
    assert describe_callable(make(30)) == describe_callable(make(30))
    assert describe_callable(make(30)) != describe_callable(make(40))


def test_what_is_no_compose_of_albumentations_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"albumentations\.Compose"):
        AlbumentationsTransform(transform=len)
