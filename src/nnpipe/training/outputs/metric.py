"""Metrics as two sums over samples, so that no figure depends on the batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

Finish = Literal["mean", "root"]


@dataclass(frozen=True, eq=False)
class Metric:
    """Each sample's contribution to a metric that is one sum divided by another.

    A mean divides the values by the samples' weights, a recall the hits by the
    members of the class, and a Dice score twice the intersection by the sum of
    both areas.

    Attributes
    ----------
    numerator
        Tensor ``(n, ...)``.  Further axes are for classes, for example; the metric is
        then the mean over those whose denominator is not 0.
    denominator
        Tensor of the same shape; ``None`` stands for ones.
    finish
        ``"root"`` takes the square root of the quotient, as a root mean square needs.
    """

    numerator: Any
    denominator: Any = None
    finish: Finish = "mean"

    def __post_init__(self) -> None:
        if self.finish not in ("mean", "root"):  # quick, since each step makes some
            check_call(Metric, vars(self))


def figure(numerator: npt.NDArray[np.float64], denominator: npt.NDArray[np.float64], finish: Finish) -> float:
    """Return the metric that follows from two sums over samples; NaN if nothing was counted."""
    above, below = np.broadcast_arrays(np.asarray(numerator, np.float64), np.asarray(denominator, np.float64))
    counted = below != 0
    if not counted.any():
        return float("nan")
    mean = float(np.mean(above[counted] / below[counted]))
    return float(np.sqrt(mean)) if finish == "root" else mean
