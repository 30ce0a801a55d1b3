"""The decoder of models that give a small mask for each box, or masks of whole pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders._input_frames import frames, input_size
from nnpipe.decoders.detection_decoder import Array, padded_boxes
from nnpipe.decoders.finished_boxes import FinishedBoxesDecoder
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation


class MaskRCNNDecoder(FinishedBoxesDecoder):
    """Mask R-CNN and its like, as torchvision, the ONNX model zoo and MMDetection export them.

    Outputs are boxes ``(n, k, 4)``, classes, scores ``(n, k)`` and masks ``(n, k, rows, columns)``, perhaps with an
    axis of length 1; or the same without the first axis, for one picture; or boxes with their scores, ``(n, k, 5)``.
    Masks of the input's size cover the picture, and smaller ones, such as 28 x 28, each cover its box, into which they
    are drawn as torchvision does it.  The defaults are torchvision's.
    """

    tasks: ClassVar[tuple[str, ...]] = (InstanceSegmentation.name,)

    box_order: Literal["tlbr", "ltrb", "centre"] = argument(
        "ltrb", help="top left bottom right, left top right bottom, or x and y of the centre with width and height"
    )
    coordinates: Literal["pixels", "shares"] = argument(
        "pixels", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    class_offset: int = argument(1, help="number of the first class, 1 if 0 is the background", minimum=0)
    max_boxes: int = argument(100, help="greatest number of masks in a picture, the most certain ones", minimum=1)
    covers: Literal["auto", "box", "picture"] = argument(
        "auto", help="what a mask covers: its box, or the whole picture; auto: the picture if it has the input's size"
    )

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check that there is an output with masks."""
        if not any(len(each.shape) in (3, 4, 5) for each in io.outputs):
            shapes = ", ".join(f"{each.name} {show_shape(each.shape)}" for each in io.outputs)
            raise ConfigError(f"{type(self).__name__} reads boxes, classes, scores and masks; the model gives {shapes}")

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``masks`` or ``box_masks`` with ``boxes``, ``scores`` and ``class``, and the ``frame``."""
        rest, masks = _parts(outputs)
        pictures = self.selected(rest, io, inputs)
        found = padded_boxes(pictures) | {"frame": frames(len(pictures), io, inputs)}
        chosen = np.zeros((*found["scores"].shape, *masks.shape[2:]), np.float32)
        for place, (which, *_) in enumerate(pictures):
            chosen[place, : len(which)] = masks[place][which]
        whole = masks.shape[2:] == input_size(io, inputs) if self.covers == "auto" else self.covers == "picture"
        if whole:
            return {name: each for name, each in found.items() if name != "boxes"} | {"masks": chosen}
        return found | {"box_masks": chosen}


def _parts(outputs: Batch) -> tuple[Batch, Array]:
    """Return the outputs other than masks with an axis of pictures, and the masks ``(n, k, rows, columns)``."""
    name, masks = max(outputs.items(), key=lambda item: item[1].ndim)
    rest = {other: each for other, each in outputs.items() if other != name}
    boxes = [each for each in rest.values() if each.ndim in (2, 3) and each.shape[-1] in (4, 5)]
    if not boxes:
        raise _misfit(outputs)
    if max(each.ndim for each in boxes) == 2:  # of one picture, without an axis of pictures
        rest, masks = {other: each[None] for other, each in rest.items()}, masks[None]
    if masks.ndim == 5 and 1 in (masks.shape[2], masks.shape[4]):
        masks = masks[:, :, 0] if masks.shape[2] == 1 else masks[..., 0]
    for other, each in list(rest.items()):
        if each.ndim == 3 and each.shape[2] == 5:
            rest |= {other: each[..., :4], f"{other} scores": each[..., 4]}
    counts = {each.shape[:2] for each in rest.values() if each.ndim > 1}
    if masks.ndim != 4 or counts != {masks.shape[:2]} or 0 in masks.shape[2:]:
        raise _misfit(outputs)
    return rest, masks


def _misfit(outputs: Batch) -> SpecMismatch:
    given = ", ".join(f"{name} {show_shape(each.shape)}" for name, each in outputs.items())
    return SpecMismatch(
        f"expected boxes (n, k, 4), classes and scores (n, k), and masks (n, k, rows, columns); the model gives {given}"
    )
