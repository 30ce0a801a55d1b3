"""Metrics as two sums that add up over batches, so that no figure depends on the batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

Finish = Literal["mean", "root"]


@dataclass(frozen=True, eq=False)
class Metric:
    """Each sample's part in a figure that is one sum divided by another.

    A mean has the values above and the samples' weights below; a recall has
    hits above and members below; a Dice score has twice the intersection above
    and both areas below.

    Attributes
    ----------
    numerator
        Tensor ``(n, ...)``.  Further axes are for classes or the like; the
        figure is then the mean over those for which there is anything below.
    denominator
        Tensor of the same shape; ``None`` counts each sample once.
    finish
        ``"root"`` takes the square root at the end, as a root mean square needs.
    """

    numerator: Any
    denominator: Any = None
    finish: Finish = "mean"

    def __post_init__(self) -> None:
        check_call(Metric, vars(self))


def figure(numerator: npt.NDArray[np.float64], denominator: npt.NDArray[np.float64], finish: Finish) -> float:
    """Return the figure that two sums over samples stand for; NaN where nothing was counted."""
    above, below = np.broadcast_arrays(np.asarray(numerator, np.float64), np.asarray(denominator, np.float64))
    counted = below != 0
    if not counted.any():
        return float("nan")
    mean = float(np.mean(above[counted] / below[counted]))
    return float(np.sqrt(mean)) if finish == "root" else mean
