"""The size of a model's images, and where pictures lie in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.tasks.frames import create_frames


def compute_frames(
    count: int, io: IOSpec, inputs: Sequence[InputProcessing]
) -> npt.NDArray[np.float32]:
    """Return the frames of ``count`` pictures in a model's input, ``(count, 3)``; see
    :mod:`nnpipe.tasks.frames`.

    Raises
    ------
    SpecMismatch
        If the model takes no images, or images of any size.
    """
    fit = next((each.fit for each in inputs if each.kind == "image"), "squeeze")
    return create_frames(count, *get_input_size(io, inputs), fit)


def get_input_size(io: IOSpec, inputs: Sequence[InputProcessing]) -> tuple[int, int]:
    """Return height and width of the images that a model takes.

    Raises
    ------
    SpecMismatch
        If it takes no images, or images of any size.
    """
    for spec in io.inputs:
        if len(spec.shape) != 4:
            continue
        meaning = next(
            (each for each in inputs if each.name == spec.name), InputProcessing(spec.name, "image")
        )
        height, width = spec.shape[2:] if is_channels_first(spec, meaning) else spec.shape[1:3]
        if meaning.size is not None:
            return meaning.size
        if height is not None and width is not None:
            return height, width
        raise SpecMismatch(f"the model takes images of any size in {spec.name!r}: give --resize")
    raise SpecMismatch("the model takes no images, to which its predictions could be related")


def is_channels_first(spec: TensorSpec, meaning: InputProcessing) -> bool:
    """Return whether an input for images has the axis of channels before those of height and
    width.
    """
    return meaning.layout == "nchw" or (meaning.layout == "auto" and spec.shape[1] in (1, 3))


# COCO has 80 classes with category numbers from 1 to 90 (https://cocodataset.org,
# instances_val2017.json).
_UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
_CLASSES = np.full(91, -1, np.int64)
_CLASSES[[number for number in range(1, 91) if number not in _UNUSED]] = np.arange(80)


def map_coco_classes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the class of each COCO category number, from 0 to 79; -1 for numbers that are not in
    use.

    Examples
    --------
    >>> map_coco_classes(np.array([1, 12, 90, 91]))
    array([ 0, -1, 79, -1])
    """
    known = (numbers >= 0) & (numbers < len(_CLASSES))
    return np.where(known, _CLASSES[np.where(known, numbers, 0)], -1)
