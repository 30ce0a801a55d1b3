"""Problems of networks, as values that can be collected and reported together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nnpipe.core.errors import ConfigError

CODES = {
    "argument": "a layer's argument has an invalid value, or is missing",
    "unknown-argument": "a layer was given an argument that its table does not have",
    "unknown-layer": "a layer of a class that is not in the vocabulary; its configuration is kept as it is",
    "unknown-object": "an initialiser or the like that is not in the vocabulary; it is kept as it is",
    "changed-meaning": "an argument that today's Keras reads differently than the version that wrote the file",
    "training-only": "an unknown part that matters in training only; it is left out, as the weights are known",
    "name": "two layers of one name, or a layer without one",
    "reference": "an input or output names a layer, a call or an output that does not exist",
    "unused": "a layer or a call on which no output depends: Keras would leave it out",
    "cycle": "a layer depends on its own output",
    "arity": "a layer was given more or fewer inputs than it takes",
    "shape": "the shapes of a layer's inputs do not fit the layer, or each other",
    "shared-shape": "a layer is used several times with inputs for which it would need different weights",
    "no-input-shape": "a network that does not state the shapes of its inputs",
    "structure": "a configuration that does not have the structure of a network's",
    "weights-only": "a file that holds weights and no structure",
    "damaged": "a file, or a part of it, that cannot be read",
    "weights": "weights that are missing, unexpected, or of another shape than the structure requires",
    "size": "a file that claims more than it can hold",
    "backend": "something that one backend cannot compute",
}
"""The codes of problems and their meanings."""


@dataclass(frozen=True)
class NetworkProblem:
    """One problem of a network.

    Attributes
    ----------
    code
        A key of :data:`CODES`.
    path
        Its place: a path in the configuration, such as ``layers[2].config.units``,
        or a layer's name; empty for the whole network.
    message
        What is wrong, in one line.
    """

    code: str
    path: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such code: {self.code}")

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Misfit(Exception):
    """Raised by a layer whose inputs do not fit; callers turn it into a problem with this
    ``code``.
    """

    def __init__(self, message: str, code: str = "shape") -> None:
        super().__init__(message)
        self.code = code


def raise_if(problems: Iterable[NetworkProblem], what: str) -> None:
    """Raise one :class:`~nnpipe.core.errors.ConfigError` that lists the problems, if there are
    any.
    """
    told = [str(problem) for problem in problems]
    if told:
        more = f" (and {len(told) - 8} more)" if len(told) > 8 else ""
        raise ConfigError(f"{what}: {'; '.join(told[:8])}{more}")
