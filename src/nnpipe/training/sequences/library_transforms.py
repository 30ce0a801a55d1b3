"""Transforms of torchvision and of Albumentations, for pictures with their masks, boxes and points.

They are functions for :meth:`Sequence.map <nnpipe.training.sequences.sequence.Sequence.map>`.  The
random numbers of a sample follow from seed, epoch and id, although both libraries draw from
generators of their own: so batches are the same with any number of workers, and a killed training
goes on to the bit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.training.sequences.picture_transforms import Sample, get_feature
from nnpipe.training.sequences.randomness import Seeded


@dataclass(frozen=True, kw_only=True)
class TorchvisionTransform:
    """Applies a transform of ``torchvision.transforms.v2`` to several features of a sample
    together.

    Parameters
    ----------
    transform
        The transform, such as ``v2.Compose([...])``.
    images
        Names of pictures ``(channels, height, width)``.
    masks
        Names of masks ``(height, width)`` or ``(masks, height, width)``.
    boxes
        Names of boxes ``(n, 4)``: left, top, right and bottom in pixels.
    keypoints
        Names of points ``(n, 2)``: x and y in pixels.
    labels
        Names of features with a row for each box, which ``v2.SanitizeBoundingBoxes`` cuts with the
        boxes.
    """

    transform: Any
    images: tuple[str, ...] = ("input",)
    masks: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ()
    keypoints: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    # so that a run is not continued with other arguments
    described: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_call(TorchvisionTransform, {n: v for n, v in vars(self).items() if n != "described"})
        object.__setattr__(self, "described", " ".join(repr(self.transform).split()))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the changed sample; features become arrays again."""
        import torch

        try:
            from torchvision import tv_tensors
        except ImportError:
            raise MissingDependency(
                "TorchvisionTransform needs torchvision: pip install torchvision"
            ) from None
        height, width = get_feature(sample, (*self.images, *self.masks)[0]).shape[-2:]
        given: dict[str, Any] = {}
        for names, wrap in (
            (self.images, tv_tensors.Image),
            (self.masks, tv_tensors.Mask),
            (
                self.boxes,
                lambda t: tv_tensors.BoundingBoxes(t, format="XYXY", canvas_size=(height, width)),
            ),
            (self.keypoints, lambda t: tv_tensors.KeyPoints(t, canvas_size=(height, width))),
            (self.labels, torch.as_tensor),
        ):
            for name in names:
                given[name] = wrap(
                    torch.from_numpy(np.ascontiguousarray(get_feature(sample, name)))
                )
        if self.labels:  # the name by which v2.SanitizeBoundingBoxes finds them
            given["labels"] = tuple(given[name] for name in self.labels)
        with Seeded(int(random.integers(2**63))):
            found = self.transform(given)
        if self.labels:
            found |= dict(zip(self.labels, found.pop("labels"), strict=True))
        return sample | {name: np.array(value) for name, value in found.items()}


@dataclass(frozen=True, kw_only=True)
class AlbumentationsTransform:
    """Applies a transform of Albumentations to a picture, its masks, boxes and points.

    Boxes need ``albumentations.BboxParams(format="pascal_voc", label_fields=[...])`` and points
    ``albumentations.KeypointParams(format="xy")`` in the ``Compose``; the features of ``labels``
    are its label fields.

    Parameters
    ----------
    transform
        An ``albumentations.Compose``.
    image
        The name of the picture ``(channels, height, width)``; those of one channel or three.
    masks
        Names of masks ``(height, width)``.
    boxes
        The name of the boxes ``(n, 4)``: left, top, right and bottom in pixels.
    keypoints
        The name of points ``(n, 2)``: x and y in pixels.
    labels
        Names of features with a row for each box.
    """

    transform: Any
    image: str = "input"
    masks: tuple[str, ...] = ()
    boxes: str | None = None
    keypoints: str | None = None
    labels: tuple[str, ...] = ()
    described: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_call(
            AlbumentationsTransform, {n: v for n, v in vars(self).items() if n != "described"}
        )
        if not hasattr(self.transform, "set_random_seed"):
            raise ConfigError(
                "AlbumentationsTransform takes an albumentations.Compose of version 1.4.19 or later"
            )
        try:
            told = json.dumps(self.transform.to_dict(), sort_keys=True, default=str)
        except NotImplementedError:  # such as a Lambda
            told = " ".join(repr(self.transform).split())
        object.__setattr__(self, "described", told)

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the changed sample."""
        picture = np.ascontiguousarray(np.moveaxis(get_feature(sample, self.image), 0, -1))
        given: dict[str, Any] = {"image": picture}
        if self.masks:
            given["masks"] = [
                np.ascontiguousarray(get_feature(sample, name)) for name in self.masks
            ]
        if self.boxes is not None:
            given["bboxes"] = get_feature(sample, self.boxes).reshape(-1, 4).astype(np.float32)
        if self.keypoints is not None:
            given["keypoints"] = (
                get_feature(sample, self.keypoints).reshape(-1, 2).astype(np.float32)
            )
        given |= {name: get_feature(sample, name) for name in self.labels}
        seed = int(random.integers(2**31))
        self.transform.set_random_seed(seed)
        with Seeded(seed):  # some transforms draw from the global generators
            found = self.transform(**given)
        image = np.asarray(found["image"])
        changed = {
            self.image: np.ascontiguousarray(
                np.moveaxis(image if image.ndim == 3 else image[..., None], -1, 0)
            )
        }
        changed |= dict(zip(self.masks, map(np.asarray, found.get("masks", ())), strict=True))
        if self.boxes is not None:
            changed[self.boxes] = np.asarray(found["bboxes"], np.float32).reshape(-1, 4)
        if self.keypoints is not None:
            changed[self.keypoints] = np.asarray(found["keypoints"], np.float32).reshape(-1, 2)
        return sample | changed | {name: np.asarray(found[name]) for name in self.labels}
