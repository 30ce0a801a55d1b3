"""Unknown layers, kept as they were written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.objects import Raw


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

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        raise Misfit(f"({self.class_name}) is not known, so neither are the shapes that come out of it")

    def limits(self, backend: str) -> Iterable[str]:
        """Return a limit for PyTorch; only Keras may have the class."""
        return [f"{self.class_name} is not in the vocabulary"] if backend == "torch" else []
