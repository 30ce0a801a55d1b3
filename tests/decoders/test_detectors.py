"""Each decoder finds the boxes that were written into the outputs of its kind of model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.output_decoder import OutputDecoder, get_decoder
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.decoders import (
    FastestDetDecoder,
    FinishedBoxesDecoder,
    ScoredBoxesDecoder,
    SSDDecoder,
    YOLODecoder,
    YOLOHeadsDecoder,
    YOLOXDecoder,
)
from nnpipe.decoders.detection_decoder import DetectionDecoder

CLASSES = 3
# Left, top, width and height in shares of an input of 64 x 96 (height x width), with the class.
BOXES = np.array([[0.26, 0.13, 0.25, 0.45], [0.6, 0.55, 0.21, 0.31]], np.float32)
NUMBERS = np.array([2, 0])
HEIGHT, WIDTH = 64, 96
CENTRES = BOXES[:, :2] + BOXES[:, 2:] / 2


def logit(share: Any) -> Any:
    return np.log(share / (1 - share))


def spec_of(outputs: dict[str, np.ndarray]) -> IOSpec:
    image = TensorSpec("image", (None, 3, HEIGHT, WIDTH), "float32")
    return IOSpec(
        (image,),
        tuple(TensorSpec(name, (None, *a.shape[1:]), "float32") for name, a in outputs.items()),
    )


def decode(
    decoder: DetectionDecoder, *outputs: np.ndarray, fit: Any = "squeeze"
) -> dict[str, np.ndarray]:
    named = {f"out{number}": output for number, output in enumerate(outputs)}
    meaning = InputProcessing("image", "image", resize="bilinear", fit=fit)
    decoder.check(spec_of(named), (meaning,), DatasetSpec("detection", (), (), ("a", "b", "c")))
    return dict(decoder.decode(named, spec_of(named), (meaning,)))


def assert_found(found: dict[str, np.ndarray]) -> None:
    order = np.argsort(-found["class"][0])
    assert found["class"][0, order].tolist() == [2, 0]
    np.testing.assert_allclose(found["boxes"][0, order], BOXES, atol=2e-3)
    assert found["scores"].min() > 0.5
    np.testing.assert_array_equal(found["frame"], [[HEIGHT, WIDTH, 0]])


def cell_of(centre: np.ndarray, rows: int, columns: int) -> tuple[int, int, np.ndarray]:
    """Return row and column of a box's cell, and the place of its centre in it."""
    place = centre * [columns, rows]
    column, row = (int(number) for number in place)
    return row, column, place - [column, row]


def test_fastestdet() -> None:
    output = np.zeros((1, 5 + CLASSES, 8, 12), np.float32)
    for box, centre, number in zip(BOXES, CENTRES, NUMBERS, strict=True):
        row, column, place = cell_of(centre, 8, 12)
        output[0, :5, row, column] = [0.9, *np.arctanh(place), *logit(box[2:])]
        output[0, 5 + number, row, column] = 0.9
    assert_found(decode(FastestDetDecoder(), output))


def test_yolox_with_its_cells_grid_by_grid() -> None:
    grids = [(HEIGHT // stride, WIDTH // stride, stride) for stride in (8, 16, 32)]
    output = np.zeros(
        (1, sum(rows * columns for rows, columns, _ in grids), 5 + CLASSES), np.float32
    )
    before = 0
    for number, (rows, columns, stride) in enumerate(grids[:2]):
        row, column, place = cell_of(CENTRES[number], rows, columns)
        cell = output[0, before + row * columns + column]
        cell[:5] = [*place, *np.log(BOXES[number, 2:] * [WIDTH, HEIGHT] / stride), 0.9]
        cell[5 + NUMBERS[number]] = 0.9
        before += rows * columns
    assert_found(decode(YOLOXDecoder(), output))
    with pytest.raises(SpecMismatch, match="give its strides"):
        decode(YOLOXDecoder(strides=(8,)), output)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("objectness", [False, True])
@pytest.mark.parametrize("coordinates", ["pixels", "shares"])
def test_yolo_as_exported(transposed: bool, objectness: bool, coordinates: Any) -> None:
    output = np.zeros((1, 40, 4 + objectness + CLASSES), np.float32)
    extent = [WIDTH, HEIGHT] if coordinates == "pixels" else [1, 1]
    for place, number in enumerate(NUMBERS):
        output[0, 7 * place, :4] = [*CENTRES[place] * extent, *BOXES[place, 2:] * extent]
        output[0, 7 * place, 4:5] = 0.9 if objectness else 0
        output[0, 7 * place, 4 + objectness + number] = 0.9
    decoder = YOLODecoder(objectness=objectness, coordinates=coordinates)
    output = output.transpose(0, 2, 1) if transposed else output
    assert_found(decode(decoder, output))
    other = dataclasses.replace(decoder, objectness=not objectness)
    with pytest.raises(ConfigError, match=f"objectness={str(objectness).lower()}"):
        decode(other, output)


def heads(version: str, form: str) -> list[np.ndarray]:
    """Write a box each into the heads of two grids, coarsest first."""
    anchors = np.array([[20, 30], [24, 32], [30, 20], [40, 40]], np.float32).reshape(2, 2, 2)
    found = []
    for grid, stride in enumerate((8, 16)):
        rows, columns = HEIGHT // stride, WIDTH // stride
        values = (64 if version == "v8" else 5) + CLASSES
        head = np.full((1, rows, columns, 1 if version == "v8" else 2, values), -9.0, np.float32)
        row, column, place = cell_of(CENTRES[grid], rows, columns)
        size = BOXES[grid, 2:] * [WIDTH, HEIGHT]
        cell = head[0, row, column, -1]
        if version == "v8":
            sides = np.concatenate(
                [size / stride / 2 - place + 0.5, size / stride / 2 + place - 0.5]
            )
            bins = cell[:64].reshape(4, 16)
            for side, own in zip(sides, bins, strict=True):
                low, part = int(side), side - int(side)
                own[:] = -60
                own[low : low + 2] = np.log(np.maximum([1 - part, part], 1e-9))
        elif version in ("v3", "v4"):
            cell[:4] = [*logit(place), *np.log(size / anchors[grid, -1])]
        else:
            cell[:4] = [*logit((place + 0.5) / 2), *logit(np.sqrt(size / anchors[grid, -1]) / 2)]
        if version != "v8":
            cell[4] = 3
        cell[-CLASSES + NUMBERS[grid]] = 3
        if form == "anchors first":
            found.append(head.transpose(0, 3, 1, 2, 4))
        elif form == "anchors last":
            found.append(head)
        else:
            flat = head.reshape(1, rows, columns, -1)
            found.append(flat if form == "channels last" else flat.transpose(0, 3, 1, 2))
    return found[::-1]


@pytest.mark.parametrize(
    ("version", "form"),
    [
        ("v3", "channels first"),
        ("v3", "channels last"),
        ("v4", "anchors last"),
        ("v5", "anchors first"),
        ("v7", "channels first"),
        ("v8", "channels first"),
        ("v8", "channels last"),
    ],
)
def test_yolo_heads(version: Any, form: str) -> None:
    anchors = None if version == "v8" else (20.0, 30, 24, 32, 30, 20, 40, 40)
    assert_found(decode(YOLOHeadsDecoder(version=version, anchors=anchors), *heads(version, form)))


def test_outputs_that_are_no_heads_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"not the heads of YOLOv3; .* YOLODecoder"):
        decode(YOLOHeadsDecoder(), np.zeros((1, 40, 8), np.float32))


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "none"])
def test_ssd_with_raw_anchors(activation: Any) -> None:
    decoder = SSDDecoder(strides=(16, 32), activation=activation)
    anchors = decoder.compute_anchors(HEIGHT, WIDTH)
    assert len(anchors) == 4 * 6 * 3 + 2 * 3 * 6
    offsets = np.zeros((1, len(anchors), 4), np.float32)
    scores = np.full(
        (1, len(anchors), 1 + CLASSES), 0.0 if activation == "none" else -9, np.float32
    )
    scores[..., 0] = 1
    for place, (box, centre, number) in enumerate(zip(BOXES, CENTRES, NUMBERS, strict=True)):
        own = anchors[5 + 30 * place]
        offsets[0, 5 + 30 * place] = [
            *(centre[::-1] - own[:2]) / own[2:] * 10,
            *np.log(box[:1:-1] / own[2:]) * 5,
        ]
        scores[0, 5 + 30 * place, 1 + number] = 0.9 if activation == "none" else 3
    assert_found(decode(decoder, offsets, scores))


def test_the_anchors_of_ssd_mobilenet() -> None:
    """As many as in TensorFlow's models for 300 x 300, and the first as its generator makes
    them.
    """
    anchors = SSDDecoder().compute_anchors(300, 300)
    assert len(anchors) == 1917
    np.testing.assert_allclose(anchors[0], [0.5 / 19, 0.5 / 19, 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(anchors[1, 2:], [0.2 / 2**0.5, 0.2 * 2**0.5], rtol=1e-6)


def finished(padding: int) -> list[np.ndarray]:
    boxes = np.zeros((1, 2 + padding, 4), np.float32)
    boxes[0, :2] = np.concatenate([BOXES[:, 1::-1], (BOXES[:, :2] + BOXES[:, 2:])[:, ::-1]], axis=1)
    classes = np.zeros((1, 2 + padding), np.float32)
    classes[0, :2] = NUMBERS
    scores = np.full((1, 2 + padding), 0.7, np.float32)
    return [boxes, classes, scores, np.array([2], np.float32)]


def test_boxes_that_the_model_has_suppressed() -> None:
    boxes, classes, scores, count = finished(3)
    assert_found(decode(FinishedBoxesDecoder(), boxes, classes, scores, count))
    assert_found(decode(FinishedBoxesDecoder(), count[:, None], scores, boxes, classes))
    one = np.concatenate([boxes, scores[..., None], classes[..., None]], axis=-1)[:, :2]
    assert_found(decode(FinishedBoxesDecoder(), one))
    named = {
        "detection_boxes": boxes,
        "detection_classes": 0 * classes,
        "detection_scores": np.ones_like(scores),
    }
    # whole scores are told by their names
    found = FinishedBoxesDecoder().decode(named, spec_of(named))
    assert (found["scores"] == 1).all()
    numbered = FinishedBoxesDecoder(numbering="coco-ids", class_offset=1)
    ids = np.where(classes == 2, 3, 1).astype(np.float32)  # a car and a person
    assert_found(decode(numbered, boxes, ids, scores, count))


def test_finished_boxes_without_an_axis_of_pictures() -> None:
    boxes, classes, scores, _ = finished(0)
    pixels = boxes[0][:, [1, 0, 3, 2]] * [WIDTH, HEIGHT, WIDTH, HEIGHT]
    torchvision = FinishedBoxesDecoder(box_order="ltrb", coordinates="pixels", class_offset=1)
    named = {"boxes": pixels, "labels": classes[0] + 1, "scores": scores[0]}
    io = IOSpec(
        spec_of(named).inputs,
        tuple(TensorSpec(n, (None, *a.shape[1:]), "float32") for n, a in named.items()),
    )
    assert_found(
        dict(
            torchvision.decode(
                named, io, (InputProcessing("image", "image", resize="bilinear", fit="squeeze"),)
            )
        )
    )


def test_boxes_and_the_scores_of_all_classes() -> None:
    boxes = np.zeros((1, 5, 4), np.float32)
    boxes[0, :2] = np.concatenate([CENTRES, BOXES[:, 2:]], axis=1)
    detr = np.full((1, 5, CLASSES + 1), -9, np.float32)
    detr[..., -1] = 3
    detr[0, [0, 1], NUMBERS] = 9
    options: Any = {
        "box_order": "centre",
        "activation": "softmax",
        "background": "last",
        "score_threshold": 0.1,
    }
    assert_found(decode(ScoredBoxesDecoder(suppression="inside", **options), boxes, detr))
    sigmoids = np.full((1, 5, CLASSES), -9, np.float32)
    sigmoids[0, [0, 1], NUMBERS] = 3
    assert_found(
        decode(
            ScoredBoxesDecoder(box_order="centre", activation="sigmoid", score_threshold=0.1),
            sigmoids,
            boxes,
        )
    )
    corners = np.zeros((1, 5, 1, 4), np.float32)
    corners[0, :2, 0] = np.concatenate([BOXES[:, :2], BOXES[:, :2] + BOXES[:, 2:]], axis=1)
    yolov4 = np.zeros((1, 5, CLASSES), np.float32)
    yolov4[0, [0, 1], NUMBERS] = 0.9
    assert_found(decode(ScoredBoxesDecoder(), corners, yolov4))
    sized = np.zeros((1, 5, 4), np.float32)
    sized[0, :2] = BOXES * [WIDTH, HEIGHT, WIDTH, HEIGHT]
    first = np.concatenate([1 - yolov4.sum(axis=2, keepdims=True), yolov4], axis=2)
    assert_found(
        decode(
            ScoredBoxesDecoder(box_order="ltwh", coordinates="pixels", background="first"),
            sized,
            first[..., :],
        )
    )
    numbered = np.zeros((1, 5, 91), np.float32)
    numbered[0, [0, 1], [3, 1]] = 0.9  # a car and a person
    named = {"scores": numbered, "boxes": corners[:, :, 0]}
    assert_found(
        dict(
            ScoredBoxesDecoder(numbering="coco-ids").decode(
                named,
                spec_of(named),
                (InputProcessing("image", "image", resize="bilinear", fit="squeeze"),),
            )
        )
    )
    with pytest.raises(ConfigError, match=r"2 classes.*data set has 3"):
        decode(ScoredBoxesDecoder(background="last"), sigmoids, boxes)
    with pytest.raises(ConfigError, match="expected boxes"):
        decode(ScoredBoxesDecoder(), sigmoids)


def test_overlapping_boxes_of_a_class_are_dropped_unless_the_model_did_that() -> None:
    output = np.zeros((1, 20, 4 + CLASSES), np.float32)
    output[0, :3, :4] = [[40, 30, 20, 20], [41, 30, 20, 20], [41, 30, 20, 20]]
    output[0, [0, 1, 2], [4, 4, 5]] = [0.9, 0.8, 0.7]
    assert decode(YOLODecoder(), output)["scores"].shape == (1, 2)
    assert decode(YOLODecoder(suppression="inside"), output)["scores"].shape == (1, 3)
    assert decode(YOLODecoder(score_threshold=0.75), output)["scores"].shape == (1, 1)
    assert decode(YOLODecoder(max_boxes=1), output)["scores"].shape == (1, 1)
    output[0, 0, 5] = 0.6
    assert decode(YOLODecoder(per_box="all", suppression="inside"), output)["scores"].shape == (
        1,
        4,
    )


def test_the_frame_says_how_pictures_were_brought_to_the_input() -> None:
    output = np.zeros((1, 20, 4 + CLASSES), np.float32)
    assert decode(YOLODecoder(), output, fit="letterbox-centre")["frame"].tolist() == [
        [HEIGHT, WIDTH, 2]
    ]


def test_a_data_set_with_other_classes_is_refused() -> None:
    named = {"out": np.zeros((1, 20, 4 + CLASSES), np.float32)}
    with pytest.raises(ConfigError, match=r"reads 3 classes from outputs of .*the data set has 2"):
        YOLODecoder().check(spec_of(named), (), DatasetSpec("detection", (), (), ("a", "b")))


@pytest.mark.parametrize(
    "decoder", [YOLOXDecoder(strides=(8,)), YOLOHeadsDecoder(anchors=(1.0, 2.0)), SSDDecoder()]
)
def test_a_decoder_travels_in_a_models_meaning(decoder: OutputDecoder) -> None:
    meaning = ModelMetadata.from_json(ModelMetadata(decoder=decoder.describe()).to_json())
    assert get_decoder(meaning) == decoder
    assert type(decoder).__name__ in decoder.format_description()
