"""Detection: boxes and classes of the things in a picture, by a cell of a grid for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.analysis.suppression import non_maximum_suppression
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.training.outputs.output import Metric, Output, to_single_precision

_REACH = 8  # cells from the centre of a box to its farthest side


@dataclass(frozen=True)
class BoxGrid:
    """The cells of several grids, row by row, the finest grid first.

    Attributes
    ----------
    size
        Height and width of the pictures in pixels.
    strides
        Pixels between the cells of each grid.
    """

    size: tuple[int, int]
    strides: tuple[int, ...]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of each grid; parts of a cell count."""
        height, width = self.size
        return [(-(-height // stride), -(-width // stride)) for stride in self.strides]

    @property
    def count(self) -> int:
        """The number of all cells."""
        return sum(rows * columns for rows, columns in self.shapes)

    def decode_corners(self, numbers: Any) -> Any:
        """Return left, top, right and bottom in pixels, given the four numbers of each cell,
        ``(n, cells, 4)``.
        """
        import torch

        places, strides = [], []
        for (rows, columns), stride in zip(self.shapes, self.strides, strict=True):
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            places.append(torch.stack([column, row], -1).reshape(-1, 2))
            strides.append(torch.full((rows * columns, 1), stride))
        place, stride = (torch.cat(part).to(numbers) for part in (places, strides))
        centre = (numbers[..., :2] + place) * stride
        half = numbers[..., 2:].exp() * stride / 2
        return torch.cat([centre - half, centre + half], -1)

    def assign_boxes(self, boxes: Any, classes: Any) -> Any:
        """Return the number of the box of each cell, ``(n, cells)``, -1 for none.

        Parameters
        ----------
        boxes
            Left, top, width and height in pixels, ``(n, m, 4)``.
        classes
            ``(n, m)``; boxes of the class -1 are none.
        """
        import torch

        boxes, classes = boxes.detach(), classes.detach()
        found = torch.full((len(boxes), self.count), -1, device=boxes.device)
        if not boxes.shape[1]:
            return found
        cells = self._find_cells(boxes)
        # One after the other, the largest first: a cell that several boxes share gets the smallest.
        order = (boxes[..., 2] * boxes[..., 3]).argsort(dim=1, descending=True, stable=True)
        for box in order.unbind(1):
            box = box[:, None]
            there = classes.gather(1, box) >= 0
            cell = cells.gather(1, box)
            found.scatter_(1, cell, torch.where(there, box, found.gather(1, cell)))
        return found

    def _find_cells(self, boxes: Any) -> Any:
        """Return the cell to which each box belongs, ``(n, m)``."""
        import torch

        reach = boxes[..., 2:].amax(-1) / 2
        cells = torch.zeros(boxes.shape[:2], dtype=torch.long, device=boxes.device)
        start = self.count
        for last, ((rows, columns), stride) in enumerate(
            zip(reversed(self.shapes), reversed(self.strides), strict=True)
        ):
            start -= rows * columns
            column, row = ((boxes[..., :2] + boxes[..., 2:] / 2) / stride).long().unbind(-1)
            own = start + row.clamp(0, rows - 1) * columns + column.clamp(0, columns - 1)
            cells = own if last == 0 else torch.where(reach <= _REACH * stride, own, cells)
        return cells


def compute_giou(found: Any, true: Any, plain: bool = False) -> Any:
    """Return the generalised intersection over union of pairs of boxes, ``(k,)``, or the plain one.

    Boxes are left, top, right and bottom, ``(k, 4)``.
    """
    import torch

    inner = (
        torch.minimum(found[:, 2:], true[:, 2:]) - torch.maximum(found[:, :2], true[:, :2])
    ).clamp(min=0)
    outer = torch.maximum(found[:, 2:], true[:, 2:]) - torch.minimum(found[:, :2], true[:, :2])
    both = inner.prod(1)
    union = (found[:, 2:] - found[:, :2]).prod(1) + (true[:, 2:] - true[:, :2]).prod(1) - both
    around = outer.prod(1)
    tiny = torch.finfo(found.dtype).tiny
    shares = both / union.clamp(min=tiny)
    return shares if plain else shares - (around - union) / around.clamp(min=tiny)


_LEAST_SCORE = 0.001  # as usual where mAP is computed


@dataclass(eq=False)
class DetectionOutput(Output):
    """Numbers of cells ``(n, cells, 5 + classes)`` with boxes ``(n, m, 4)`` as targets.

    The numbers of a single grid may also be a map ``(n, 5 + classes, rows, columns)``, as a
    convolution returns it. Cells are those of one or several grids over the picture, row by row,
    the finest grid first.  The numbers of a cell are x and y of a box's centre relative to the
    cell, the logarithms of its width and height, all in cells, the logit of whether a box is there,
    and the logits of the classes: what ``YOLOXDecoder`` reads after a sigmoid of all but the first
    four (Ge et al., "YOLOX: Exceeding YOLO Series in 2021", 2021).

    A box belongs to the cell that its centre is in, in the finest grid in which it reaches at most
    8 cells far from there, as in Tian et al., "FCOS: Fully Convolutional One-Stage Object
    Detection", 2019; of several boxes in a cell, to the smallest.  The loss of a sample is the
    binary cross entropy of all cells, and for cells with a box that of its classes and five times
    ``1 - GIoU`` (Rezatofighi et al., "Generalized Intersection over Union", 2019), divided by the
    number of such cells.

    Parameters
    ----------
    target
        Left, top, width and height in pixels.
    classes
        The class of each box ``(n, m)``; -1 for padding.
    size
        Height and width of the pictures in pixels.
    strides
        Pixels between the cells of each grid.
    overlap
        Intersection over union with a more certain box of the class above which a box is dropped.
    max_boxes
        Greatest number of boxes in a picture, the most certain ones.
    """

    classes: Any = field(kw_only=True)
    size: tuple[int, int] = field(kw_only=True)
    strides: tuple[int, ...] = field(default=(8, 16, 32), kw_only=True)
    overlap: float = field(default=0.65, kw_only=True)
    max_boxes: int = field(default=100, kw_only=True)
    _there: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_call(DetectionOutput, vars(self))
        if self.output.dim() == 4:
            self.output = self.output.flatten(2).transpose(1, 2)

    @property
    def _grid(self) -> BoxGrid:
        grid = BoxGrid(self.size, self.strides)
        if self.output.dim() != 3 or self.output.shape[1] != grid.count or self.output.shape[2] < 6:
            raise ConfigError(
                f"DetectionOutput: the output is {tuple(self.output.shape)}; pictures of "
                f"{self.size[0]} x {self.size[1]} pixels with strides "
                f"{', '.join(map(str, self.strides))} need (n, {grid.count}, 5 + classes)"
            )
        return grid

    def _assign_boxes(self) -> Any:
        """Return which box each cell has, ``(n, cells)``, -1 for none."""
        if self._there is None:
            self._there = self._grid.assign_boxes(self.target, self.classes)
        return self._there

    def _select_matched_boxes(self) -> tuple[Any, Any, Any, Any]:
        """Return sample and cell of the cells with a box, and the predicted and the true
        corners, ``(k, 4)``.
        """
        assigned = self._assign_boxes()
        samples, cells = (assigned >= 0).nonzero(as_tuple=True)
        found = self._grid.decode_corners(to_single_precision(self.output)[..., :4])[samples, cells]
        true = self.target[samples, assigned[samples, cells]].to(found.dtype)
        true = true.clone()
        true[:, 2:] += true[:, :2]
        return samples, cells, found, true

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch.nn.functional as F

        output, assigned = to_single_precision(self.output), self._assign_boxes()
        there = (assigned >= 0).to(output.dtype)
        losses = F.binary_cross_entropy_with_logits(output[..., 4], there, reduction="none").sum(1)
        samples, cells, found, true = self._select_matched_boxes()
        if len(samples):
            labels = self.classes[samples, assigned[samples, cells]].long()
            chances = output[samples, cells, 5:]
            wanted = F.one_hot(labels, chances.shape[1]).to(output.dtype)
            parts = F.binary_cross_entropy_with_logits(chances, wanted, reduction="none").sum(1)
            parts = parts + 5 * (1 - compute_giou(found, true))
            losses = losses.index_add(0, samples, parts)
        return losses / there.sum(1).clamp(min=1)

    def predictions(self) -> Any:
        """Return left, top, width, height, score and class of the boxes that stay, ``(n, max_boxes,
        6)``.

        The most certain ones come first; the class of padding is -1.
        """
        import torch

        output = to_single_precision(self.output.detach())
        chances = output[..., 4:].sigmoid()
        scores, labels = (chances[..., :1] * chances[..., 1:]).max(2)
        corners = self._grid.decode_corners(output[..., :4])
        made = np.zeros((len(output), self.max_boxes, 6), np.float32)
        made[..., 5] = -1
        pictures = zip(*(part.cpu().numpy() for part in (corners, scores, labels)), strict=True)
        for place, (boxes, sure, classes) in enumerate(pictures):
            usable = np.flatnonzero((sure > _LEAST_SCORE) & np.isfinite(boxes).all(1))
            stay = usable[
                non_maximum_suppression(boxes[usable], sure[usable], classes[usable], self.overlap)
            ][: self.max_boxes]
            made[place, : len(stay)] = np.column_stack([boxes[stay], sure[stay], classes[stay]])
        made[..., 2:4] -= made[..., :2]
        return torch.from_numpy(made).to(output.device)

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``detection``."""
        made = self.predictions().cpu().numpy()
        spec = DatasetSpec("detection", (), (), tuple(map(str, range(self.output.shape[2] - 5))))
        found = {
            "boxes": made[..., :4],
            "scores": made[..., 4],
            "class": made[..., 5].astype(np.int64),
        }
        truth = {"boxes": self.target.cpu().numpy(), "class": self.classes.cpu().numpy()}
        return [get_task("detection").keeping_all().evaluate(found, truth, spec)]

    def metrics(self) -> dict[str, Metric]:
        """Return, over the cells with a box, the mean ``iou`` and the ``accuracy`` of the classes.

        The mean average precision, ``map``, needs all samples: ask for it by the trainer's
        ``metrics``.
        """
        output = self.output.detach()
        samples, cells, found, true = self._select_matched_boxes()
        count = (self._assign_boxes() >= 0).sum(1).to(true.dtype)
        right = (
            output[samples, cells, 5:].argmax(1)
            == self.classes[samples, self._assign_boxes()[samples, cells]]
        )
        shares = compute_giou(found.detach(), true, plain=True)
        empty = count.new_zeros(len(count))
        return {
            "iou": self.make_metric(empty.index_add(0, samples, shares), count),
            "accuracy": self.make_metric(empty.index_add(0, samples, right.to(count.dtype)), count),
        }
