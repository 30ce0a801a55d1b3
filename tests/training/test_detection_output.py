"""The output of detectors: cells get boxes, numbers become boxes as YOLOX's do, and figures are
those of the task.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.decoders.yolo import YOLOXDecoder
from nnpipe.tasks.detection.task import Detection
from nnpipe.training.outputs.detection import BoxGrid, DetectionOutput, compute_giou

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SIZE, STRIDES, N, M, CLASSES = (64, 96), (8, 16, 32), 12, 5, 3
GRID = BoxGrid(SIZE, STRIDES)


def drawn(seed: int = 0) -> dict[str, Any]:
    """Boxes inside of pictures, of which the last two of each are padding in half of the
    pictures.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(4, 60, (N, M, 2))
    places = rng.uniform(0, 1, (N, M, 2)) * (np.array([96, 64]) - sizes)
    labels = rng.integers(0, CLASSES, (N, M))
    labels[::2, 3:] = -1
    boxes = torch.from_numpy(np.concatenate([places, sizes], 2).astype(np.float32))
    numbers = torch.from_numpy(rng.standard_normal((N, GRID.count, 5 + CLASSES)).astype(np.float32))
    return {"numbers": numbers, "boxes": boxes, "classes": torch.from_numpy(labels)}


def output_of(made: dict[str, Any], part: slice = slice(None), **options: Any) -> DetectionOutput:
    numbers, boxes, classes = (made[name][part] for name in ("numbers", "boxes", "classes"))
    return DetectionOutput(numbers, boxes, classes=classes, size=SIZE, strides=STRIDES, **options)


def perfect(made: dict[str, Any]) -> Any:
    """Numbers that say just what the boxes are that have a cell."""
    assigned = GRID.assign_boxes(made["boxes"], made["classes"])
    # a box of one cell around each cell's corner
    cells = GRID.decode_corners(torch.zeros(1, GRID.count, 4))[0]
    numbers = torch.full((N, GRID.count, 5 + CLASSES), -20.0)
    for sample, cell in (assigned >= 0).nonzero():
        box, stride = made["boxes"][sample, assigned[sample, cell]], cells[cell, 2] - cells[cell, 0]
        corner = (cells[cell, :2] + cells[cell, 2:]) / 2
        numbers[sample, cell, :2] = (box[:2] + box[2:] / 2 - corner) / stride
        numbers[sample, cell, 2:4] = (box[2:] / stride).log()
        numbers[sample, cell, 4] = 20
        numbers[sample, cell, 5 + made["classes"][sample, assigned[sample, cell]]] = 20
    return numbers


def test_a_box_belongs_to_the_cell_with_its_centre_in_the_finest_grid_in_which_it_is_small() -> (
    None
):
    boxes = torch.tensor(
        [[[0, 0, 8, 8], [88, 56, 8, 8], [10, 0, 86, 60], [0, 0, 300, 60], [4.0, 4, 2, 2]]]
    )
    assigned = GRID.assign_boxes(boxes, torch.tensor([[0, 1, 2, 0, 1]]))[0]
    # 12 columns and 8 rows of 8 pixels, then 6 and 4 of 16, then 3 and 2 of 32; the first and the
    # last box share one.
    assert {int(cell): int(assigned[cell]) for cell in (assigned >= 0).nonzero()[:, 0]} == {
        0: 4,
        95: 1,
        3 * 12 + 6: 2,
        96 + 24 + 2: 3,
    }
    assert (GRID.assign_boxes(boxes, torch.full((1, 5), -1)) == -1).all()
    assert GRID.assign_boxes(boxes[:, :0], torch.zeros(1, 0).long()).shape == (1, GRID.count)


def test_numbers_become_the_boxes_that_yolox_reads() -> None:
    made = drawn()
    values = made["numbers"].clone()
    values[..., 4:] = values[..., 4:].sigmoid()
    io = IOSpec(
        (TensorSpec("image", (None, 3, *SIZE), "float32"),),
        (TensorSpec("out", tuple(values.shape), "float32"),),
    )
    decoder = YOLOXDecoder(overlap=0.65, max_boxes=20)
    expected = decoder.decode(
        {"out": values.numpy()}, io, (InputProcessing("image", "image", layout="nchw"),)
    )
    found = output_of(made, max_boxes=20).predictions().numpy()
    pixels = expected["boxes"] * np.array([96, 64, 96, 64])
    assert np.allclose(found[..., :4], pixels, rtol=1e-4, atol=1e-3)
    assert np.allclose(found[..., 4], expected["scores"], atol=1e-6)
    assert np.array_equal(found[..., 5], expected["class"])


def test_the_generalised_overlap_is_as_published() -> None:
    one = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 1, 1], [0, 0, 0, 0]])
    other = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 3, 1], [0, 0, 0, 0]])
    assert compute_giou(one, other).tolist() == pytest.approx([1, 1 / 7 - 2 / 9, -1 / 3, 0])
    assert compute_giou(one, other, plain=True).tolist() == pytest.approx([1, 1 / 7, 0, 0])


def test_right_boxes_have_no_loss_and_the_average_precision_of_the_task() -> None:
    made = drawn()
    # one box in each picture
    apart = made | {"classes": made["classes"].where(torch.arange(M) == 0, -1)}
    right = output_of(apart | {"numbers": perfect(apart)})
    assert right.losses.max() < 1e-4
    assert {
        name: float(m.numerator.sum() / m.denominator.sum()) for name, m in right.metrics().items()
    } == {
        "iou": pytest.approx(1),
        "accuracy": 1.0,
    }
    (evaluation,) = right.to_evaluations()
    assert Detection().metric("map").compute(evaluation) == pytest.approx(1)
    wrong = made | {"numbers": made["numbers"]}
    parts = [
        output_of(wrong, slice(start, start + 5)).to_evaluations()[0] for start in range(0, N, 5)
    ]
    joined, whole = Evaluation.concat(parts), output_of(wrong).to_evaluations()[0]
    spec = DatasetSpec("detection", (), (), ("a", "b", "c"))
    boxes = output_of(wrong).predictions().numpy()
    report = Detection().evaluate(
        {"boxes": boxes[..., :4], "scores": boxes[..., 4], "class": boxes[..., 5].astype(np.int64)},
        {"boxes": made["boxes"].numpy(), "class": made["classes"].numpy()},
        spec,
    )
    figures = [Detection().metric("map").compute(each) for each in (joined, whole, report)]
    assert 0 < figures[0] == figures[1] == figures[2]


def test_its_loss_leads_to_right_boxes() -> None:
    made = drawn(1)
    numbers = made["numbers"].clone().requires_grad_()
    optimiser = torch.optim.Adam([numbers], 0.2)
    for _ in range(150):
        optimiser.zero_grad()
        output_of(made | {"numbers": numbers}).loss().backward()
        optimiser.step()
    found = output_of(made | {"numbers": numbers.detach()})
    figures = {
        name: float(m.numerator.sum() / m.denominator.sum()) for name, m in found.metrics().items()
    }
    assert figures["iou"] > 0.9
    assert figures["accuracy"] == 1


def test_pictures_without_boxes_are_no_trouble() -> None:
    made = drawn()
    nothing = output_of(made | {"classes": torch.full((N, M), -1)})
    assert torch.isfinite(nothing.losses).all()
    assert all(float(metric.denominator.sum()) == 0 for metric in nothing.metrics().values())
    assert len(nothing.to_evaluations()[0]) == N


def test_an_output_of_another_shape_is_refused() -> None:
    made = drawn()
    with pytest.raises(
        ConfigError, match=r"64 x 96 pixels with strides 8, 16, 32 need \(n, 126, 5 \+ classes\)"
    ):
        _ = output_of(made | {"numbers": made["numbers"][:, :100]}).losses
