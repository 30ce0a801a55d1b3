"""Layers that are not known, kept as they were written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.objects import Raw


class Unknown(Layer):
    """A layer that the vocabulary does not have, kept as Keras wrote it.

    ``raw`` holds its class, its module and its configuration, all but the name
    and whether it is trained.
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
        """Only Keras can have it, and only where its class is."""
        return [f"{self.class_name} is not in the vocabulary"] if backend == "torch" else []
