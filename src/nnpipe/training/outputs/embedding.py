"""Feature vectors for callbacks, without a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.output import Output, judged_as


@dataclass(eq=False)
class EmbeddingOutput(Output):
    """Features ``(n, ...)`` for callbacks that draw or search them; ``target`` may hold labels, shown as colours.

    They have no loss unless it is given.

    Parameters
    ----------
    given
        Tensor ``(n,)`` of losses that the model computed itself, such as a penalty.
    """

    given: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_call(EmbeddingOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the given losses ``(n,)``, or zeros without a gradient."""
        if self.given is not None:
            return self.given
        import torch

        return torch.zeros(len(self.output), device=self.output.device)

    def judged(self) -> list[Evaluation]:
        """Return the evaluation of the task ``embedding``, if there are labels."""
        if self.target is None:
            return []
        vectors = self.output.flatten(1)
        return [judged_as("embedding", vectors, self.target, target="label", predicted="embedding")]
