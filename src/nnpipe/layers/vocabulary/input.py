"""The inputs of networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.layer import Inputs, Layer, Shape, TorchParts
from nnpipe.layers.vocabulary.value_kinds import IntegersKind


class Input(Layer):
    """An input of a network.

    Parameters
    ----------
    shape
        Its shape without the batch axis; ``None`` is a free axis.
    batch
        The batch size, if it is fixed.
    """

    keras: ClassVar[str] = "InputLayer"
    takes: ClassVar[tuple[int, int | None]] = (0, 0)
    inputs: Inputs = field(default=(), init=False, compare=False, repr=False)
    shape: Shape = row(IntegersKind(0, free=True), default=())
    batch: int | None = row(IntegersKind(1, single=True, optional=True), default=None)

    def alone(self, **changes: Any) -> Input:
        """Return a copy of this layer with some arguments changed; it has no inputs to leave
        out.
        """
        given = {"shape": self.shape, "batch": self.batch, "name": self.name, "dtype": self.dtype}
        return Input(**{**given, "trainable": self.trainable, **changes})

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return ((self.batch, *self.shape),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        raise NotImplementedError("an input is given, not computed")


class Unknown(Layer):
    """A layer that the vocabulary lacks, kept as Keras wrote it.

    ``raw`` holds its class, its module and its configuration, without its name
    and ``trainable``.
    """

    keras: ClassVar[str] = ""
    takes: ClassVar[tuple[int, int | None]] = (0, None)
    raw: Raw = field(default=Raw("{}"))

    @property
    def class_name(self) -> str:
        """The name of its class."""
        return str(self.raw.value.get("class_name"))

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        raise Misfit(
            f"({self.class_name}) is not known, so neither are the shapes that come out of it"
        )

    def limits(self, backend: str) -> Iterable[str]:
        """Return a limit for PyTorch; only Keras may have the class."""
        return [f"{self.class_name} is not in the vocabulary"] if backend == "torch" else []
