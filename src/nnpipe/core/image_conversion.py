"""Resize images, and convert their channels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Interpolation = Literal["bilinear", "bicubic"]

_LUMA = np.array([0.299, 0.587, 0.114])


def resize_images(
    images: npt.NDArray[np.generic],
    height: int,
    width: int,
    interpolation: Interpolation = "bilinear",
) -> npt.NDArray[np.float32]:
    """Resize images, with antialiasing where they become smaller.

    The result is that of Pillow's ``BILINEAR`` or ``BICUBIC`` and of PyTorch's
    ``interpolate`` with ``antialias=True``, without rounding or clipping in between.

    Parameters
    ----------
    images
        ``(n, h, w, channels)`` of any real type.
    height, width
        The new size.
    interpolation
        How pixels are weighted; ``"bicubic"`` is Keys' convolution with a = -0.5.  Where it exceeds
        the range of an integer type, the result is clipped to that range.

    Returns
    -------
    ndarray
        float32 ``(n, height, width, channels)``.
    """
    count, rows, columns, channels = images.shape
    pixels = images.astype(np.float32)
    if rows != height:
        pixels = np.matmul(
            _compute_weights(rows, height, interpolation),
            pixels.reshape(count, rows, columns * channels),
        )
    pixels = pixels.reshape(count, height, columns, channels)
    if columns != width:
        pixels = np.matmul(_compute_weights(columns, width, interpolation), pixels)
    if interpolation == "bicubic" and images.dtype.kind in "iu":
        limits = np.iinfo(images.dtype.name)
        pixels = np.clip(pixels, limits.min, limits.max)
    return np.ascontiguousarray(pixels.reshape(count, height, width, channels))


def resize_byte_images(
    images: npt.NDArray[np.uint8],
    height: int,
    width: int,
    interpolation: Interpolation = "bilinear",
) -> npt.NDArray[np.uint8]:
    """Resize images of bytes to the very bytes of Pillow, which rounds twice: after the width, and
    after the height.

    Detectors notice: mAP on few pictures differs in the third digit from that without rounding.
    Weights are multiples of 2 ** -22, as in Pillow's ``src/libImaging/Resample.c``.  From version
    13 on, Pillow begins with the height for some upright images, whose bytes then differ by 1.  The
    parameters are those of :func:`resize_images`.
    """
    count, rows, columns, channels = images.shape
    pixels = images
    if columns != width:
        across = pixels.transpose(0, 2, 1, 3).reshape(count, columns, rows * channels)
        pixels = (
            _resize_lines(across, width, interpolation)
            .reshape(count, width, rows, channels)
            .transpose(0, 2, 1, 3)
        )
    if rows != height:
        down = pixels.reshape(count, rows, width * channels)
        pixels = _resize_lines(down, height, interpolation).reshape(count, height, width, channels)
    return np.ascontiguousarray(pixels)


def _resize_lines(
    lines: npt.NDArray[np.uint8], target: int, interpolation: Interpolation
) -> npt.NDArray[np.uint8]:
    """Resize the second axis of ``(n, source, m)``; sums stay below 2 ** 31."""
    places, weights = _compute_taps(lines.shape[1], target, interpolation)
    sums = np.full((len(lines), target, lines.shape[2]), 1 << 21, np.int32)
    for place, weight in zip(places.T, weights.T, strict=True):
        sums += lines[:, place] * weight[:, None]
    found: npt.NDArray[np.uint8] = np.clip(sums >> 22, 0, 255).astype(np.uint8)
    return found


@functools.lru_cache(maxsize=16)
def _compute_taps(
    source: int, target: int, interpolation: Interpolation
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the source pixels of each of ``target`` pixels and their weights times 2 ** 22;
    ``(target, taps)``.
    """
    shares = np.rint(_compute_shares(source, target, interpolation) * (1 << 22)).astype(np.int32)
    there = shares != 0
    first, last = there.argmax(axis=1), source - there[:, ::-1].argmax(axis=1)
    places = first[:, None] + np.arange(int((last - first).max()))
    inside = np.minimum(places, source - 1)
    return inside, np.where(places < source, np.take_along_axis(shares, inside, axis=1), 0).astype(
        np.int32
    )


def resize_and_crop(
    images: npt.NDArray[np.generic],
    height: int,
    width: int,
    shortest_edge: int,
    interpolation: Interpolation,
) -> npt.NDArray[np.float32]:
    """Resize images so that their shorter side has a given length, and cut out the centre.

    Lengths and offsets are rounded as by torchvision's ``Resize`` and ``CenterCrop``.

    Parameters
    ----------
    images
        ``(n, h, w, channels)`` of any real type.
    height, width
        The size of the result.
    shortest_edge
        The length of the shorter side before the crop, in pixels; at least the greater of
        ``height`` and ``width``.
    interpolation
        As in :func:`resize_images`.

    Returns
    -------
    ndarray
        float32 ``(n, height, width, channels)``.
    """
    rows, columns = images.shape[1:3]
    edge = max(shortest_edge, height, width)
    longer = int(edge * max(rows, columns) / min(rows, columns))
    scaled = (edge, longer) if rows <= columns else (longer, edge)
    found = resize_images(images, *scaled, interpolation)
    top, left = round((scaled[0] - height) / 2), round((scaled[1] - width) / 2)
    return np.ascontiguousarray(found[:, top : top + height, left : left + width])


@dataclass(frozen=True)
class Letterbox:
    """The place of an image in a letterbox.

    Parameters
    ----------
    scale
        The factor by which the image is enlarged; below 1 it is reduced.
    height, width
        The image's size in the letterbox, in pixels.
    top, left
        The pixels above and to the left of it.
    """

    scale: float
    height: int
    width: int
    top: int
    left: int


def fit_letterbox(rows: int, columns: int, height: int, width: int, centred: bool) -> Letterbox:
    """Return where an image of ``rows`` x ``columns`` is placed in ``height`` x ``width``, its
    aspect ratio kept.

    In the corner, lengths are rounded down as by YOLOX (``yolox/data/data_augment.py``,
    ``preproc``); in the centre, they are rounded to the nearest as by Ultralytics
    (``ultralytics/data/augment.py``, ``LetterBox``).
    """
    scale = min(height / rows, width / columns)
    if not centred:
        return Letterbox(scale, max(1, int(rows * scale)), max(1, int(columns * scale)), 0, 0)
    inner = max(1, round(rows * scale)), max(1, round(columns * scale))
    top, left = (
        max(0, round((whole - part) / 2 - 0.1))
        for whole, part in zip((height, width), inner, strict=True)
    )
    return Letterbox(scale, *inner, top, left)


def resize_to_letterbox(
    images: npt.NDArray[np.generic],
    height: int,
    width: int,
    interpolation: Interpolation = "bilinear",
    *,
    centred: bool = False,
    fill: float = 0.0,
) -> npt.NDArray[np.float32]:
    """Resize images with their aspect ratio kept, and fill what is left over; bytes are rounded as
    by Pillow.

    The other parameters and the result are those of :func:`resize_images`.

    Parameters
    ----------
    centred
        Whether images are placed in the centre; otherwise in the top left corner.
    fill
        The value of all other pixels.
    """
    place = fit_letterbox(images.shape[1], images.shape[2], height, width, centred)
    found = np.full((len(images), height, width, images.shape[3]), fill, np.float32)
    inside: npt.NDArray[Any]
    if images.dtype == np.uint8:
        inside = resize_byte_images(
            images.astype(np.uint8, copy=False), place.height, place.width, interpolation
        )
    else:
        inside = resize_images(images, place.height, place.width, interpolation)
    found[:, place.top : place.top + place.height, place.left : place.left + place.width] = inside
    return found


def convert_channels(images: npt.NDArray[Any], channels: int) -> npt.NDArray[Any]:
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
def _compute_weights(
    source: int, target: int, interpolation: Interpolation
) -> npt.NDArray[np.float32]:
    return _compute_shares(source, target, interpolation).astype(np.float32)


@functools.lru_cache(maxsize=16)
def _compute_shares(
    source: int, target: int, interpolation: Interpolation
) -> npt.NDArray[np.float64]:
    """Return the weights of ``source`` pixels in each of ``target`` pixels, with shape
    ``(target, source)``.
    """
    step = source / target
    reach = max(step, 1.0)
    centres = (np.arange(target) + 0.5) * step
    distance = np.abs(np.arange(source) + 0.5 - centres[:, None]) / reach
    if interpolation == "bilinear":
        weights = np.clip(1 - distance, 0, None)
    # Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4, a =
    # -1/2
    else:
        near = (1.5 * distance - 2.5) * distance**2 + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weights = np.where(distance < 1, near, np.where(distance < 2, far, 0))
    shares: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares


def to_eight_bits(image: Any, stored_as: str | None) -> npt.NDArray[np.uint8] | None:
    """Return the pixels of an image of Pillow with more than eight bits, which its ``convert``
    would clip at 255.

    Parameters
    ----------
    image
        The image: its pixels are 16-bit integers, or floats from 0 to 1.
    stored_as
        The format of its file, by Pillow's name.

    Returns
    -------
    ndarray or None
        uint8 ``(height, width)``; ``None`` for an image of eight bits.

    Raises
    ------
    ValueError
        If nothing says which number is white.
    """
    if not image.mode.startswith(("I", "F")):
        return None
    pixels = np.asarray(image)
    # Pillow holds the 16 bits of some formats as 32.
    known = pixels.dtype.kind == "f" or image.mode.startswith("I;16") or stored_as in ("PNG", "PPM")
    white = 1.0 if pixels.dtype.kind == "f" else 65535.0
    least, most = float(pixels.min()), float(pixels.max())
    if not (known and 0 <= least <= most <= white):
        kind = "floats" if pixels.dtype.kind == "f" else f"{8 * pixels.dtype.itemsize}-bit integers"
        raise ValueError(
            f"its pixels are {kind} from {least:g} to {most:g}, and nothing says which is white: "
            f"store 8 or 16 bits, "
            "or floats from 0 to 1"
        )
    return np.rint(pixels * (255.0 / white)).astype(np.uint8)
