"""Outputs of trainings without PyTorch: arrays, with losses that were computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.output import Output


@dataclass(eq=False)
class GivenOutput(Output):
    """An array ``(n, ...)``, or several by name, with the losses ``(n,)`` of the samples."""

    given: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        check_call(GivenOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the given losses ``(n,)``."""
        return self.given

    def predictions(self) -> Any:
        """Return the given output."""
        return self.output


@dataclass(eq=False)
class GivenClassification(ClassificationOutput):
    """Logits ``(n, classes)`` and targets ``(n,)`` as arrays, with the losses ``(n,)`` of the
    samples.
    """

    given: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        check_call(GivenClassification, vars(self))

    @classmethod
    def from_probabilities(
        cls, chances: np.ndarray, target: Any, losses: Any
    ) -> GivenClassification:
        """Return an output for probabilities ``(n, classes)``; 0 is replaced by the least
        positive number.
        """
        least = np.finfo(np.float32).tiny
        return cls(
            np.log(np.maximum(np.asarray(chances, np.float64), least)),
            np.asarray(target),
            given=losses,
        )

    def compute_losses(self) -> Any:
        """Return the given losses ``(n,)``."""
        return self.given

    def predictions(self) -> Any:
        """Return the classes ``(n,)``."""
        return self.output.argmax(1)
