"""How key points are judged."""

from __future__ import annotations

from typing import ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component


class PoseSettings(Component):
    """What is chosen for the task, and so for the data sets of poses."""

    abstract: ClassVar[bool] = True

    sigmas: tuple[float, ...] | None = argument(
        None, help="deviation of each key point for OKS; by default COCO's for 17 points, or 1 / points", minimum=0.0
    )
    pck_fraction: float = argument(0.1, help="distance up to which PCK takes a point as right, in lengths", minimum=0.0)
    pck_length: Literal["box", "torso", "picture"] = argument(
        "box", help="length that PCK refers to: the longer side of the person's box, the distance from left shoulder "
        "to right hip, or the longer side of the picture",
    )  # fmt: skip
