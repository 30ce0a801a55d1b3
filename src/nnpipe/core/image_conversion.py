"""Resize images, and convert their channels."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

_LUMA = np.array([0.299, 0.587, 0.114])


def resized(images: npt.NDArray[np.generic], height: int, width: int) -> npt.NDArray[np.float32]:
    """Resize images bilinearly, with antialiasing where they become smaller.

    The result is that of Pillow's ``BILINEAR`` and of PyTorch's ``interpolate``
    with ``antialias=True``, without intermediate rounding.

    Parameters
    ----------
    images
        ``(n, h, w, channels)`` of any real type.
    height, width
        The new size.

    Returns
    -------
    ndarray
        float32 ``(n, height, width, channels)``.
    """
    count, rows, columns, channels = images.shape
    pixels = images.astype(np.float32)
    if rows != height:
        pixels = np.matmul(_weights(rows, height), pixels.reshape(count, rows, columns * channels))
    pixels = pixels.reshape(count, height, columns, channels)
    if columns != width:
        pixels = np.matmul(_weights(columns, width), pixels)
    return np.ascontiguousarray(pixels.reshape(count, height, width, channels))


def recoloured(images: npt.NDArray[Any], channels: int) -> npt.NDArray[Any]:
    """Convert grey images to colour, or colour images to grey.

    Parameters
    ----------
    images
        ``(n, h, w, 1)``, or red, green and blue in ``(n, h, w, 3)``.
    channels
        3 repeats the grey channel three times; 1 computes the luma of ITU-R BT.601, section 2.5.1.

    Returns
    -------
    ndarray
        ``(n, h, w, channels)`` of the same element type; integers are rounded.
    """
    if channels == 3:
        return np.repeat(images, 3, axis=-1)
    luma: npt.NDArray[Any] = images.astype(np.float64) @ _LUMA
    if images.dtype.kind in "iu":
        luma = np.rint(luma)
    return luma[..., None].astype(images.dtype)


@functools.lru_cache(maxsize=16)
def _weights(source: int, target: int) -> npt.NDArray[np.float32]:
    """Return the weights of ``source`` pixels in each of ``target`` pixels, with shape ``(target, source)``."""
    step = source / target
    reach = max(step, 1.0)
    centres = (np.arange(target) + 0.5) * step
    weights = np.clip(1 - np.abs(np.arange(source) + 0.5 - centres[:, None]) / reach, 0, None)
    shares: npt.NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
