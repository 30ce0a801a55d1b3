"""The decoder of YOLO models that make masks from prototypes: versions 5, 7, 8, 9 and 11 for segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders._input_frames import frames
from nnpipe.decoders.detection_decoder import Array, Candidates, padded_boxes
from nnpipe.decoders.yolo import YOLODecoder
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation


class YOLOMasksDecoder(YOLODecoder):
    """YOLO with masks, as exported: each box has weights of the prototypes that the picture's masks are sums of.

    Outputs are boxes ``(n, boxes, values)`` or ``(n, values, boxes)``, as :class:`~nnpipe.decoders.yolo.YOLODecoder`
    reads them, with a weight for each prototype behind the classes, and prototypes ``(n, prototypes, rows, columns)``
    or ``(n, rows, columns, prototypes)``.  Sums are interpolated to the picture's size, and a pixel belongs to the
    thing if it is in its box and the sum above 0, as in Ultralytics' ``process_mask_native``.
    """

    tasks: ClassVar[tuple[str, ...]] = (InstanceSegmentation.name,)

    max_boxes: int = argument(100, help="greatest number of masks in a picture, the most certain ones", minimum=1)

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of values of a box without coordinates, objectness and weights of prototypes."""
        shapes = {spec.name: spec.shape for spec in io.outputs}
        flat, prototypes = _named(shapes)
        _, one, other = shapes[flat]
        number = shapes[prototypes][_axis(shapes[prototypes])]
        return (
            None if one is None or other is None or number is None else min(one, other) - 4 - self.objectness - number
        )

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return all boxes."""
        values, prototypes = _parts(outputs)
        return super().candidates({"boxes": values[..., : -prototypes.shape[1]]}, io, inputs)

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``masks``, ``boxes``, ``scores`` and ``class`` of the selected things, and the ``frame``."""
        values, prototypes = _parts(outputs)
        pictures = self.selected(outputs, io, inputs)
        found = padded_boxes(pictures)
        masks = np.zeros((*found["scores"].shape, *prototypes.shape[2:]), np.float32)
        for place, (which, *_) in enumerate(pictures):
            weights = values[place, which, -prototypes.shape[1] :].astype(np.float32)
            # Pixels of masks are those above 0.5.
            masks[place, : len(which)] = np.tensordot(weights, prototypes[place].astype(np.float32), 1) + 0.5
        return found | {"masks": masks, "frame": frames(len(pictures), io, inputs)}


def _parts(outputs: Batch) -> tuple[Array, Array]:
    """Return the values of boxes, ``(n, boxes, values)``, and prototypes, ``(n, prototypes, rows, columns)``."""
    flat, named = _named({name: each.shape for name, each in outputs.items()})
    values, prototypes = outputs[flat], outputs[named]
    if values.shape[1] < values.shape[2]:
        values = values.transpose(0, 2, 1)
    if _axis(prototypes.shape) == 3:
        prototypes = prototypes.transpose(0, 3, 1, 2)
    return values, prototypes


def _named(shapes: dict[str, tuple[int | None, ...]]) -> tuple[str, str]:
    """Return the names of the outputs with boxes and with prototypes."""
    flat = [name for name, shape in shapes.items() if len(shape) == 3]
    prototypes = [name for name, shape in shapes.items() if len(shape) == 4]
    if len(flat) != 1 or len(prototypes) != 1:
        given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
        raise SpecMismatch(
            f"expected boxes (n, values, boxes) and prototypes (n, prototypes, rows, columns); the model gives {given}"
        )
    return flat[0], prototypes[0]


def _axis(shape: Sequence[int | None]) -> int:
    """Return the axis of prototypes, of which there are fewer than rows or columns of their cells."""
    first, last = shape[1] or 1 << 30, shape[3] or 1 << 30
    return 1 if first <= last else 3
