"""What is wrong with a description of a network: values, so that all of it can be told at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nnpipe.core.errors import ConfigError

CODES = {
    "argument": "a layer's argument has a value that it cannot take, or is missing",
    "unknown-argument": "a layer was given an argument that its table does not have",
    "unknown-layer": "a layer of a class that is not in the vocabulary; its configuration is kept as it is",
    "unknown-object": "an initialiser or the like that is not in the vocabulary; it is kept as it is",
    "changed-meaning": "an argument that today's Keras reads otherwise than the version that wrote the file",
    "training-only": "something not known that counts only in training; it is left out, as the weights are there",
    "name": "two layers of one name, or a layer without one",
    "reference": "an input or output names a layer, a call of it, or an output of that call that is not there",
    "unused": "a layer, or a call of it, on which no output depends: Keras would leave it out",
    "cycle": "a layer depends on its own output",
    "arity": "a layer was given more or fewer inputs than it takes",
    "shape": "the shapes of a layer's inputs do not fit the layer, or each other",
    "shared-shape": "a layer is used several times with inputs for which it would need different weights",
    "no-input-shape": "a network that does not say what it takes",
    "structure": "a configuration that is not built as a network's is",
    "weights-only": "a file that holds weights and no structure",
    "damaged": "a file, or a part of it, that cannot be read",
    "weights": "weights that are missing, too many, or of another shape than the structure says",
    "size": "a file that claims more than it can hold",
    "backend": "something that one backend cannot compute",
}
"""Every code of a problem, and what it means."""


@dataclass(frozen=True)
class NetworkProblem:
    """One thing that is wrong.

    Attributes
    ----------
    code
        A key of :data:`CODES`.
    path
        Where: a path in the configuration, such as ``layers[2].config.units``,
        or a layer's name; empty for the whole.
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
    """Inputs do not fit a layer; raised by a layer, collected by whoever asked it.  ``code`` is the problem's."""

    def __init__(self, message: str, code: str = "shape") -> None:
        super().__init__(message)
        self.code = code


def raise_if(problems: Iterable[NetworkProblem], what: str) -> None:
    """Raise one :class:`~nnpipe.core.errors.ConfigError` that tells all problems, if there is any."""
    told = [str(problem) for problem in problems]
    if told:
        more = f" (and {len(told) - 8} more)" if len(told) > 8 else ""
        raise ConfigError(f"{what}: {'; '.join(told[:8])}{more}")
