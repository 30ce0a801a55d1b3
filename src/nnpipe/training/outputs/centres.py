"""Features that should be near the centre of their class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real


@dataclass(eq=False)
class CentreOutput(Output):
    """Features ``(n, features)`` with classes ``(n,)``: half of the squared distance to the centre of the class.

    It is the center loss (Wen et al., "A Discriminative Feature Learning Approach for Deep Face Recognition", 2016),
    to be added to that of a classification with a small ``scale``.  The metric ``distance`` is the mean distance.

    Parameters
    ----------
    centres
        Tensor ``(classes, features)``: a ``torch.nn.Parameter`` of the model, which learns with it.
    """

    centres: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        check_call(CentreOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        if self.output.dim() != 2 or self.centres.dim() != 2 or self.output.shape[1] != self.centres.shape[1]:
            raise ConfigError(
                f"CentreOutput: features are {tuple(self.output.shape)} and centres {tuple(self.centres.shape)}; "
                "both need as many columns"
            )
        return (real(self.output) - real(self.centres)[self.target]).square().sum(1) / 2

    def metrics(self) -> dict[str, Metric]:
        """Return ``distance``."""
        return {"distance": self.weighed((2 * self.losses.detach()).sqrt())}
