"""The parts of a graph: layers, their calls, and references from one call to another."""

from __future__ import annotations

from dataclasses import dataclass

from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.objects import Raw


@dataclass(frozen=True, order=True)
class Ref:
    """An output of a call of a layer: the layer's name, the number of the call, the number of the output."""

    layer: str
    call: int = 0
    output: int = 0

    def __str__(self) -> str:
        return self.layer + (f" (call {self.call}, output {self.output})" if self.call or self.output else "")


@dataclass(frozen=True)
class Use:
    """One call of a layer.

    Attributes
    ----------
    inputs
        The tensors that it is applied to, in order.
    training
        Whether it behaves as in training; ``None`` to follow the whole network.
    form
        Arguments of the call that the vocabulary does not know, as JSON, with
        ``{"input": i}`` in place of the tensors; usually ``None``.
    """

    inputs: tuple[Ref, ...] = ()
    training: bool | None = None
    form: Raw | None = None


@dataclass(frozen=True)
class LayerEntry:
    """A layer of a graph and all its calls."""

    layer: Layer
    uses: tuple[Use, ...]
