"""Numbers of classes that models and data sets count differently."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# COCO has 80 classes with category numbers from 1 to 90 (https://cocodataset.org, instances_val2017.json).
_UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
_CLASSES = np.full(91, -1, np.int64)
_CLASSES[[number for number in range(1, 91) if number not in _UNUSED]] = np.arange(80)


def coco_classes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the class of each COCO category number, from 0 to 79; -1 for numbers that are not in use.

    Examples
    --------
    >>> coco_classes(np.array([1, 12, 90, 91]))
    array([ 0, -1, 79, -1])
    """
    known = (numbers >= 0) & (numbers < len(_CLASSES))
    return np.where(known, _CLASSES[np.where(known, numbers, 0)], -1)
