"""Bringing the images of any data set to what a network for colour images takes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper, check_fits
from nnpipe.core.tensors import show_shape
from nnpipe.modelwrappers.files._pixels import resized

_COLOURS = 3


def colour_images(images: npt.NDArray[np.generic], size: tuple[int, int], brightest: int) -> npt.NDArray[np.float32]:
    """Resize images bilinearly, give them three channels and scale their pixels to -1..1.

    Parameters
    ----------
    images
        ``(n, height, width, channels)`` from 0 to ``brightest``, of one channel or three.
    size
        Height and width wanted.
    brightest
        The pixel that becomes 1.

    Returns
    -------
    ndarray
        float32 ``(n, *size, 3)``.
    """
    found = resized(images, *size)
    found *= 2 / brightest
    found -= 1
    return found if found.shape[-1] == _COLOURS else np.repeat(found, _COLOURS, axis=-1)


def check_images(wrapper: ModelWrapper, spec: DatasetSpec, classes: int) -> None:
    """Raise :class:`ConfigError` unless a data set has so many classes of images that can be given three channels."""
    shape = spec.inputs[0].shape[1:]
    if len(shape) != 3 or shape[-1] not in (1, _COLOURS):
        raise ConfigError(
            f"{type(wrapper).__name__} takes images of one channel or three, the data set gives {show_shape(shape)}"
        )
    check_fits(wrapper, spec, "classification", shape, classes)


class _Classifying(Protocol):
    @property
    def num_classes(self) -> int | None: ...


def classes_of(wrapper: _Classifying) -> int:
    """Give the number of classes, which a data set has filled in.

    Raises
    ------
    ConfigError
        If there was none.
    """
    if wrapper.num_classes is None:
        raise ConfigError(f"{type(wrapper).__name__} without a data set needs --num-classes to be given")
    return wrapper.num_classes
