"""Pictures that should be smooth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.output import Output, per_sample, real


def total_variation(images: Any, power: float = 1.0) -> Any:
    """Return how much neighbouring values differ, ``(n,)``.

    It is the sum over axes of the mean of ``|difference| ** power`` (Rudin, Osher and Fatemi, "Nonlinear Total
    Variation Based Noise Removal Algorithms", 1992, with differences along each axis by itself).

    Parameters
    ----------
    images
        Tensor ``(n, channels, ...)`` of one, two or three axes behind the channels.
    power
        1 keeps edges, 2 smooths them.
    """
    check_call(total_variation, {"power": power})
    found: Any = 0
    for axis in range(2, images.dim()):
        steps = images.diff(dim=axis).abs()
        found = found + per_sample(steps if power == 1.0 else steps**power)
    return found


@dataclass(eq=False)
class TotalVariationOutput(Output):
    """Images ``(n, channels, ...)`` whose :func:`total_variation` is the loss, to be added to others by ``scale``.

    Parameters
    ----------
    power
        As in :func:`total_variation`.
    """

    power: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(TotalVariationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the total variations ``(n,)``."""
        return total_variation(real(self.output), self.power)
