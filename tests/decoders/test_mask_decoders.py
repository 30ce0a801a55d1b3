"""Masks of boxes are drawn as torchvision draws them, and masks from prototypes as Ultralytics
does.
"""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.decoders import MaskRCNNDecoder, YOLOMasksDecoder
from nnpipe.tasks.instance_segmentation.run_lengths import (
    decode_mask_runs,
    encode_mask_runs,
    encode_partial_mask,
    extract_picture_runs,
    pad_runs,
)
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

TASK = InstanceSegmentation()


def io_of(height: int, width: int, outputs: Batch) -> IOSpec:
    given = tuple(
        TensorSpec(name, (None, *each.shape[1:]), "float32") for name, each in outputs.items()
    )
    return IOSpec((TensorSpec("image", (None, 3, height, width), "float32"),), given)


def drawn(predictions: Batch, height: int, width: int) -> np.ndarray:
    """Return the masks of the only picture, ``(k, height, width)``."""
    size, given = np.array([height, width]), predictions["class"][0] >= 0
    runs = extract_picture_runs(predictions, 0, size, given)
    return np.array([decode_mask_runs(each, (height, width)) for each in runs])


def torchvision_paste(mask: np.ndarray, box: np.ndarray, height: int, width: int) -> np.ndarray:
    """Draw a mask as ``paste_masks_in_image`` of torchvision (``models/detection/roi_heads.py``)
    does, line by line.
    """
    import torch
    from torch.nn import functional

    scale = float(mask.shape[-1] + 2) / mask.shape[-1]
    whole = functional.pad(torch.from_numpy(mask)[None, None], (1,) * 4)
    half_width, half_height = (box[2] - box[0]) * 0.5 * scale, (box[3] - box[1]) * 0.5 * scale
    middle_x, middle_y = (box[2] + box[0]) * 0.5, (box[3] + box[1]) * 0.5
    x0, y0, x1, y1 = (
        int(each)
        for each in (
            middle_x - half_width,
            middle_y - half_height,
            middle_x + half_width,
            middle_y + half_height,
        )
    )
    wide, high = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
    part = functional.interpolate(whole, size=(high, wide), mode="bilinear", align_corners=False)[
        0, 0
    ].numpy()
    picture = np.zeros((height, width), np.float32)
    left, right, top, bottom = max(x0, 0), min(x1 + 1, width), max(y0, 0), min(y1 + 1, height)
    if right > left and bottom > top:
        picture[top:bottom, left:right] = part[top - y0 : bottom - y0, left - x0 : right - x0]
    return picture > 0.5


@pytest.mark.parametrize("batched", [True, False])
def test_masks_of_boxes_are_drawn_as_torchvision_draws_them(batched: bool) -> None:
    needs("torch")
    random = np.random.default_rng(0)
    count, height, width = 30, 70, 90
    first = random.uniform(-15, 60, (count, 2))
    boxes = np.concatenate([first, first + random.uniform(1, 60, (count, 2))], axis=1).astype(
        np.float32
    )
    masks = random.random((count, 1, 28, 28)).astype(np.float32) ** 0.7
    outputs: Batch = {
        "boxes": boxes,
        "labels": random.integers(1, 4, count),
        "masks": masks,
        "scores": np.sort(random.random(count).astype(np.float32))[::-1],
    }
    if batched:
        outputs = {name: each[None] for name, each in outputs.items()}
    found = MaskRCNNDecoder(score_threshold=0.0).decode(outputs, io_of(height, width, outputs))
    assert found["class"].tolist() == [(np.ravel(outputs["labels"]) - 1).tolist()]
    wanted = [
        torchvision_paste(mask[0], box, height, width)
        for mask, box in zip(masks, boxes, strict=True)
    ]
    have = drawn(found, height, width)
    # Boxes go through shares of the input's size, so that a corner may be rounded to the other
    # side.
    same = [np.array_equal(one, other) for one, other in zip(have, wanted, strict=True)]
    assert np.mean(same) > 0.9
    assert np.mean(have == np.array(wanted)) > 0.999
    assert np.array(wanted).mean() > 0.05


def test_masks_of_whole_pictures_are_taken_as_they_are() -> None:
    random = np.random.default_rng(1)
    masks = random.random((1, 4, 20, 30)).astype(np.float32)
    dets = np.concatenate(
        [random.uniform(0, 9, (1, 4, 4)), np.array([[[0.9], [0.8], [0.3], [0.0]]])], axis=2
    )
    outputs: Batch = {
        "dets": dets.astype(np.float32),
        "labels": np.array([[2, 1, 3, 1]]),
        "masks": masks,
    }
    decoder = MaskRCNNDecoder(class_offset=0, max_boxes=2)
    found = decoder.decode(outputs, io_of(20, 30, outputs))
    assert "boxes" not in found
    assert found["class"].tolist() == [[2, 1]]
    np.testing.assert_array_equal(drawn(found, 20, 30), masks[0, :2] > 0.5)
    nothing = {
        "boxes": np.zeros((0, 4)),
        "labels": np.zeros(0, int),
        "scores": np.zeros(0),
        "masks": np.zeros((0, 1, 28, 28)),
    }
    empty = decoder.decode(nothing, io_of(20, 30, nothing))
    spec = DatasetSpec(TASK.name, (), (), tuple("abcd"))
    truth = {"runs": np.array([[[0, 600]]]), "class": np.array([[0]]), "size": np.array([[20, 30]])}
    assert TASK.primary.compute(TASK.evaluate(empty, truth, spec)) == 0
    with pytest.raises(SpecMismatch, match=r"masks \(n, k, rows, columns\); the model gives"):
        decoder.decode(
            {"boxes": np.zeros((3, 4)), "masks": np.zeros((2, 1, 28, 28))}, io_of(20, 30, nothing)
        )


def yolo_outputs(random: np.random.Generator, things: int, classes: int) -> Batch:
    """Return random boxes of 64 x 96 pixels with weights of 8 prototypes of a quarter of the
    size.
    """
    middle, size = random.uniform(0, [96, 64], (things, 2)), random.uniform(4, 60, (things, 2))
    values = np.concatenate(
        [middle, size, random.random((things, classes)), random.normal(size=(things, 8))], axis=1
    )
    return {
        "output0": values.T[None].astype(np.float32),
        "output1": random.normal(size=(1, 8, 16, 24)).astype(np.float32),
    }


@pytest.mark.parametrize("picture", [(64, 96), (128, 192), (48, 72)])
def test_masks_from_prototypes_are_those_of_ultralytics(picture: tuple[int, int]) -> None:
    """``process_mask_native`` of ``ultralytics/utils/ops.py``: sums, interpolation to the
    picture, crop, threshold.
    """
    needs("torch")
    import torch
    from torch.nn import functional

    outputs = yolo_outputs(np.random.default_rng(2), 60, 3)
    decoder = YOLOMasksDecoder(score_threshold=0.1, overlap=0.9)
    io = io_of(64, 96, outputs)
    found = decoder.decode(outputs, io)
    flat, prototypes = outputs["output0"][0], outputs["output1"][0]
    have = drawn(found, *picture)
    assert len(have) > 20
    rows, columns = np.mgrid[: picture[0], : picture[1]]
    steps = np.array([picture[1], picture[0]] * 2)
    for thing, box, mask in zip(
        decoder.select_boxes(outputs, io, ())[0].which, found["boxes"][0], have, strict=True
    ):
        sums = torch.from_numpy(np.tensordot(flat[7:, thing], prototypes, 1))[None, None]
        whole = functional.interpolate(sums, picture, mode="bilinear", align_corners=False)[
            0, 0
        ].numpy()
        left, top, wide, high = box.astype(np.float64) * steps
        inside = (columns >= left) & (columns < left + wide) & (rows >= top) & (rows < top + high)
        np.testing.assert_array_equal(mask, inside & (whole > 0))
    last = {
        "output0": outputs["output0"].transpose(0, 2, 1),
        "output1": outputs["output1"].transpose(0, 2, 3, 1),
    }
    again = decoder.decode(last, io_of(64, 96, last))
    np.testing.assert_allclose(again["masks"], found["masks"], atol=1e-6)


def test_a_letterboxed_picture_has_its_part_of_the_mask() -> None:
    outputs = yolo_outputs(np.random.default_rng(3), 40, 3)
    io = io_of(64, 96, outputs)
    centred = YOLOMasksDecoder().decode(
        outputs, io, (InputProcessing("image", "image", fit="letterbox-centre"),)
    )
    whole = YOLOMasksDecoder().decode(outputs, io)
    # A picture of 32 x 96 pixels lies in rows 16 to 48 of the input.
    np.testing.assert_array_equal(drawn(centred, 32, 96), drawn(whole, 64, 96)[:, 16:48])


def test_classes_are_counted_without_weights_of_prototypes() -> None:
    outputs = yolo_outputs(np.random.default_rng(4), 50, 3)
    io = io_of(64, 96, outputs)
    decoder = YOLOMasksDecoder()
    assert decoder.count_classes(io) == 3
    decoder.check(io, (), DatasetSpec(TASK.name, (), (), ("a", "b", "c")))
    with pytest.raises(ConfigError, match="objectness=true"):
        decoder.check(io, (), DatasetSpec(TASK.name, (), (), ("a", "b")))
    with pytest.raises(SpecMismatch, match="and prototypes"):
        decoder.decode({"output0": outputs["output0"]}, io)


def test_parts_of_pictures_are_run_lengths_as_whole_ones() -> None:
    random = np.random.default_rng(5)
    for _ in range(100):
        height, width = (int(each) for each in random.integers(1, 9, 2))
        picture = np.zeros((height, width), bool)
        top, left = int(random.integers(0, height)), int(random.integers(0, width))
        part = picture[top : top + random.integers(0, 9), left : left + random.integers(0, 9)]
        part[:] = random.random(part.shape) < 0.7
        np.testing.assert_array_equal(
            encode_partial_mask(part, top, left, height, width), encode_mask_runs(picture)
        )
    assert pad_runs([encode_partial_mask(np.ones((3, 2), bool), 0, 1, 3, 4)]).tolist() == [
        [3, 6, 3]
    ]
