"""Bringing images to another size."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt


def resized(images: npt.NDArray[np.generic], height: int, width: int) -> npt.NDArray[np.float32]:
    """Resize images bilinearly; where they shrink, all source pixels are weighed in.

    This is what Pillow's ``BILINEAR`` and PyTorch's ``interpolate`` with
    ``antialias=True`` compute, with no rounding in between.

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


@functools.lru_cache(maxsize=16)
def _weights(source: int, target: int) -> npt.NDArray[np.float32]:
    """Say how much each of ``source`` pixels counts in each of ``target`` ones; ``(target, source)``."""
    step = source / target
    reach = max(step, 1.0)
    centres = (np.arange(target) + 0.5) * step
    weights = np.clip(1 - np.abs(np.arange(source) + 0.5 - centres[:, None]) / reach, 0, None)
    shares: npt.NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
