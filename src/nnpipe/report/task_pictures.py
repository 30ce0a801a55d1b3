"""How a task shows in a picture what a model said about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import NotSupported
from nnpipe.core.registry import named
from nnpipe.core.tensors import Batch

Picture = npt.NDArray[np.uint8]
"""``(height, width, 3)``, red, green and blue."""

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (122, 95, 182))
"""Colours of classes, which people with any kind of colour vision can distinguish (Okabe and Ito, 2008)."""


class TaskPictures(Discoverable, ABC):
    """Draws the predictions of a task into pictures.

    Such classes are found like components, beside the task that they are for.

    Attributes
    ----------
    task
        The name of the task.

    Examples
    --------
    >>> class CountingPictures(TaskPictures):
    ...     'Shows counts.'
    ...     task = "counting"
    ...     def drawn(self, picture, predictions, class_names):
    ...         return picture, f"{predictions['count'][0]:g} things"
    ...     def difference(self, picture, one, other):
    ...         return abs(float(one["count"][0] - other["count"][0]))
    >>> grey = np.full((4, 4, 3), 128, np.uint8)
    >>> CountingPictures().difference(grey, {"count": np.array([2.0])}, {"count": np.array([3.5])})
    1.5
    """

    task: ClassVar[str] = ""

    @abstractmethod
    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with what a model said about it, and the same in a few words.

        Parameters
        ----------
        picture
            The picture as it is.
        predictions
            The predictions for this picture alone; ``(1, ...)``.
        class_names
            The names of the classes; there may be fewer than classes.
        """

    @abstractmethod
    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return how much the predictions of two models for a picture differ; 0 if they say the same.

        The models may take pictures in different sizes and ways, so that predictions are compared in pixels of the
        picture.
        """


def pictures_of(task: str) -> TaskPictures:
    """Return how a task draws its predictions.

    Raises
    ------
    NotSupported
        If it does not say how.
    """
    known = {cls.task: cls for cls in named(TaskPictures).values()}
    if task not in known:
        raise NotSupported(f"the task {task!r} does not draw into pictures; those that do: {', '.join(sorted(known))}")
    return known[task]()


def draws(task: str) -> bool:
    """Return whether a task draws its predictions into pictures."""
    return any(cls.task == task for cls in named(TaskPictures).values())


def class_name(number: int, class_names: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has none."""
    return class_names[number] if 0 <= number < len(class_names) else f"class {number}"


def first_of(values: Any) -> npt.NDArray[Any]:
    """Return the only sample of an array of predictions as float64."""
    found: npt.NDArray[Any] = np.asarray(values, np.float64)
    return np.asarray(found[0])


def mixed(picture: Picture, where: npt.NDArray[np.bool_], colours: Any, strength: Any = 0.5) -> Picture:
    """Return a picture with colours over some of its pixels.

    Parameters
    ----------
    picture
        The picture, ``(height, width, 3)``.
    where
        The pixels that are coloured, ``(height, width)``.
    colours
        A colour, ``(3,)``, or that of each of these pixels, ``(n, 3)``, in their order.
    strength
        From 0, where nothing is seen of the colours, to 1, where nothing else is; one number or ``(n, 1)``.
    """
    found: Picture = picture.copy()
    found[where] = np.rint((1 - strength) * picture[where] + strength * np.asarray(colours, np.float64))
    return found
