"""Grids of cells over a picture, each of which may have a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def corners(self, numbers: Any) -> Any:
        """Return left, top, right and bottom in pixels, given the four numbers of each cell, ``(n, cells, 4)``."""
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

    def assigned(self, boxes: Any, classes: Any) -> Any:
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
        cells = self._cells(boxes)
        # One after the other, the largest first: a cell that several boxes share gets the smallest.
        order = (boxes[..., 2] * boxes[..., 3]).argsort(dim=1, descending=True, stable=True)
        for box in order.unbind(1):
            box = box[:, None]
            there = classes.gather(1, box) >= 0
            cell = cells.gather(1, box)
            found.scatter_(1, cell, torch.where(there, box, found.gather(1, cell)))
        return found

    def _cells(self, boxes: Any) -> Any:
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


def generalised_overlap(found: Any, true: Any, plain: bool = False) -> Any:
    """Return the generalised intersection over union of pairs of boxes, ``(k,)``, or the plain one.

    Boxes are left, top, right and bottom, ``(k, 4)``.
    """
    import torch

    inner = (torch.minimum(found[:, 2:], true[:, 2:]) - torch.maximum(found[:, :2], true[:, :2])).clamp(min=0)
    outer = torch.maximum(found[:, 2:], true[:, 2:]) - torch.minimum(found[:, :2], true[:, :2])
    both = inner.prod(1)
    union = (found[:, 2:] - found[:, :2]).prod(1) + (true[:, 2:] - true[:, :2]).prod(1) - both
    around = outer.prod(1)
    tiny = torch.finfo(found.dtype).tiny
    shares = both / union.clamp(min=tiny)
    return shares if plain else shares - (around - union) / around.clamp(min=tiny)
