"""The base of decoders for detectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.suppression import non_maximum_suppression
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.layout import Shape
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, show_shape
from nnpipe.decoders._input_frames import compute_frames
from nnpipe.decoders._input_frames import get_input_size as get_input_size
from nnpipe.tasks.detection.task import Detection

Array = npt.NDArray[Any]

_MOST_CANDIDATES = 30_000  # for the suppression of one picture, the most certain ones


@dataclass(frozen=True, eq=False)
class Candidates:
    """All boxes that a model proposes for a batch.

    Attributes
    ----------
    boxes
        Left, top, right and bottom, in shares of the input's width and height; ``(n, k, 4)``.
    scores
        ``(n, k, classes)``; or ``(n, k)`` if ``classes`` are given.
    classes
        The class of each box, ``(n, k)``; ``None`` if each box has a score for each class.
    """

    boxes: Array
    scores: Array
    classes: Array | None = None


class SelectedBoxes(NamedTuple):
    """The boxes of a picture that a decoder selects, the most certain first.

    Attributes
    ----------
    which
        Their places among the candidates, ``(k,)``.
    boxes
        Left, top, right and bottom, in shares of the input's width and height; ``(k, 4)``.
    scores, classes
        ``(k,)``.
    """

    which: Array
    boxes: Array
    scores: Array
    classes: Array


class DetectionDecoder(OutputDecoder):
    """Base of decoders for detectors: it selects boxes by their scores, and suppresses those that
    overlap.

    A subclass writes :meth:`decode_candidates`.  For :meth:`check`, it may also write
    :meth:`count_classes`."""

    abstract: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = (Detection.name,)

    score_threshold: float = argument(
        0.001,
        help="least score of a box; 0.001 is usual where mAP is computed",
        minimum=0.0,
        maximum=1.0,
    )
    suppression: Literal["outside", "inside"] = argument(
        "outside", help="whether overlapping boxes are dropped here, or inside the model already"
    )
    overlap: float = argument(
        0.65,
        help=(
            "intersection over union with a more certain box of the class above which a box is "
            "dropped"
        ),
        minimum=0.0,
        maximum=1.0,
    )
    per_box: Literal["best", "all"] = argument(
        "best",
        help=(
            "whether a box gets its best class only, or counts for each class with sufficient score"
        ),
    )
    max_boxes: int = argument(
        1000, help="greatest number of boxes in a picture, the most certain ones", minimum=1
    )

    @abstractmethod
    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return all boxes with their scores.

        Raises
        ------
        SpecMismatch
            If the outputs are not those of such a model; the message says what they should be.
        """

    def count_classes(self, io: IOSpec) -> int | None:
        """Return how many classes a model with these outputs tells apart; ``None`` if its shapes
        do not tell.
        """
        return None

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that the outputs have the right shapes, and the model as many classes as the
        data set.
        """
        try:
            count = self.count_classes(io)
        except SpecMismatch as error:
            raise ConfigError(str(error)) from None
        if count is not None and spec.class_names and count != len(spec.class_names):
            raise ConfigError(
                f"{type(self).__name__} reads {count} classes from outputs of "
                f"{_format_shapes(io)}, and the data set has {len(spec.class_names)}; it must name "
                f"all classes of the model, in its order"
            )

    def without_answer(self, outputs: Batch, samples: int) -> npt.NDArray[np.bool_]:
        """Return false for all samples: what is not finite counts where it belongs to a selected
        box.
        """
        return np.zeros(samples, np.bool_)

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``boxes``, ``scores`` and ``class`` of the selected boxes, and the ``frame`` of
        each picture.
        """
        pictures = self.select_boxes(outputs, io, inputs)
        return pad_boxes(pictures) | {"frame": compute_frames(len(pictures), io, inputs)}

    def select_boxes(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> list[SelectedBoxes]:
        """Return the selected boxes of each picture; errors are those of
        :meth:`decode_candidates`.
        """
        found = self.decode_candidates(outputs, io, inputs)
        return [
            self._select_picture_boxes(
                boxes, scores, None if found.classes is None else found.classes[place]
            )
            for place, (boxes, scores) in enumerate(zip(found.boxes, found.scores, strict=True))
        ]

    def _select_picture_boxes(
        self, boxes: Array, scores: Array, classes: Array | None
    ) -> SelectedBoxes:
        which = np.arange(len(boxes))
        if classes is None and self.per_box == "all":
            which, classes = np.nonzero(~(scores <= self.score_threshold))  # true of NaN, too
            boxes, scores = boxes[which], scores[which, classes]
        else:
            if classes is None:
                classes = np.argmax(scores, axis=1)
                scores = np.take_along_axis(scores, classes[:, None], axis=1)[:, 0]
            sure = ~(scores <= self.score_threshold)
            which, boxes, scores, classes = which[sure], boxes[sure], scores[sure], classes[sure]
        usable, finite = (
            np.flatnonzero(classes >= 0),
            np.isfinite(boxes).all(axis=1) & np.isfinite(scores),
        )
        # Boxes that are no answer come first and suppress none, so that none is lost.
        order = usable[
            np.argsort(-np.where(finite, scores, np.inf)[usable], kind="stable")[:_MOST_CANDIDATES]
        ]
        if self.suppression == "outside" and len(order) and finite[order].all():
            order = order[
                non_maximum_suppression(boxes[order], scores[order], classes[order], self.overlap)
            ]
        order = order[: self.max_boxes]
        return SelectedBoxes(which[order], boxes[order], scores[order], classes[order])


def pad_boxes(pictures: Sequence[SelectedBoxes]) -> dict[str, Array]:
    """Return ``boxes``, left, top, width and height, ``scores`` and ``class`` of all pictures,
    padded alike.
    """
    most = max((len(each.scores) for each in pictures), default=0)
    boxes = np.zeros((len(pictures), most, 4), np.float32)
    scores = np.zeros((len(pictures), most), np.float32)
    classes = np.full((len(pictures), most), -1, np.int64)
    for place, own in enumerate(pictures):
        boxes[place, : len(own.boxes)] = own.boxes
        scores[place, : len(own.boxes)] = own.scores
        classes[place, : len(own.boxes)] = own.classes
    boxes[..., 2:] -= boxes[..., :2]
    return {"boxes": boxes, "scores": scores, "class": classes}


def compute_corners(centre: Array, size: Array) -> Array:
    """Return left, top, right and bottom of boxes, given x and y of their centres, and width and
    height.
    """
    return np.concatenate([centre - size / 2, centre + size / 2], axis=-1)


def list_cells(rows: int, columns: int) -> npt.NDArray[np.float32]:
    """Return column and row of each cell of a grid, row by row; ``(rows * columns, 2)``."""
    found = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1)
    return found.reshape(-1, 2).astype(np.float32)


def sigmoid(values: Array) -> Array:
    """Return the logistic function, without overflow."""
    found: Array = 0.5 * (np.tanh(0.5 * values) + 1)
    return found


def get_only_output(outputs: Batch, io: IOSpec, rank: int, expected: str) -> Array:
    """Return the only output, or raise :class:`SpecMismatch` if there are several, or its rank
    differs.
    """
    if len(outputs) == 1:
        found: Array = next(iter(outputs.values()))
        if found.ndim == rank:
            return found
    raise SpecMismatch(f"expected one output, {expected}; the model gives {_format_shapes(io)}")


def _format_shapes(io: IOSpec) -> str:
    return ", ".join(f"{spec.name} {show_shape(spec.shape)}" for spec in io.outputs)


def get_only_shape(io: IOSpec, rank: int, expected: str) -> tuple[int | None, ...]:
    """Return the shape of the only output; errors are those of :func:`get_only_output`."""
    if len(io.outputs) == 1 and len(io.outputs[0].shape) == rank:
        return io.outputs[0].shape
    raise SpecMismatch(f"expected one output, {expected}; the model gives {_format_shapes(io)}")


BoxOrder = Literal["tlbr", "ltrb", "ltwh", "centre"]
ORDERS = (
    "top left bottom right, left top right bottom, left top width height, or x and y of the centre "
    "with the size"
)


def find_box_outputs(shapes: Mapping[str, Shape]) -> tuple[str, str] | None:
    """Return the names of the outputs with boxes and with scores of classes; ``None`` if they
    cannot be told.

    Boxes are four numbers.  So are the scores of four classes: then names tell, or else the order.
    """
    if len(shapes) != 2 or any(not 3 <= len(shape) <= 4 for shape in shapes.values()):
        return None
    four = [name for name, shape in shapes.items() if shape[-1] == 4]
    called = [name for name in four if any(word in name.lower() for word in ("box", "loc"))]
    boxes = next(iter(called if len(called) == 1 else four), None)
    if boxes is None:
        return None
    return boxes, next(name for name in shapes if name != boxes)


def apply_activation(scores: Array, activation: Literal["sigmoid", "softmax", "none"]) -> Array:
    """Return scores as probabilities."""
    scores = scores.astype(np.float32)
    if activation == "sigmoid":
        return sigmoid(scores)
    if activation == "softmax":
        odds = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return np.asarray(odds / odds.sum(axis=-1, keepdims=True))
    return scores


def normalize_boxes(
    boxes: Array,
    order: BoxOrder,
    coordinates: Literal["pixels", "shares"],
    io: IOSpec,
    inputs: Sequence[InputProcessing],
) -> Array:
    """Return left, top, right and bottom of boxes, in shares of the input's size."""
    boxes = boxes.astype(np.float32)
    if order == "tlbr":
        boxes = boxes[..., [1, 0, 3, 2]]
    elif order == "ltwh":
        boxes = np.concatenate([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], axis=-1)
    elif order == "centre":
        boxes = compute_corners(boxes[..., :2], boxes[..., 2:])
    if coordinates == "pixels":
        height, width = get_input_size(io, inputs)
        boxes = boxes / np.array([width, height, width, height], np.float32)
    return boxes
