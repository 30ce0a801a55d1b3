"""Upsampling of images and sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.values import Value, known


def _wanted(x: Value, size: Any, factors: Sequence[float | None]) -> list[int]:
    """Return the lengths after resizing."""
    lengths = x.shape[2:]
    if size is not None:
        return [known(length, "resizing") for length in size]
    return [int(known(have, "resizing") * float(f or 1)) for have, f in zip(lengths, factors, strict=True)]


def _plain(x: Value, wanted: Sequence[int], factors: Sequence[float | None]) -> bool:
    """Return whether the factor between positions is that of the lengths, which is what TensorFlow takes."""
    lengths = x.shape[2:]
    return all(
        not factor or (have is not None and abs(want / have - factor) < 1e-9)
        for have, want, factor in zip(lengths, wanted, factors, strict=True)
    )


def _factors(given: Sequence[Any], axes: int) -> tuple[Any, list[float | None]]:
    """Return size and factors; the overload ``vec`` has a list of factors, the other one for each axis."""
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        return None, list(given[0])
    return None, list(given) if len(given) == axes else [None] * axes


def _bilinear(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    import tensorflow as tf

    _, factors = _factors(given, 2)
    wanted = _wanted(x, size, factors)
    if list(x.shape[2:]) == wanted:
        return x
    if not corners and not _plain(x, wanted, factors):
        return _by_matrices(x, wanted, "bilinear", corners, factors)
    found = tf.raw_ops.ResizeBilinear(
        images=x.last(), size=wanted, align_corners=corners, half_pixel_centers=not corners
    )
    return Value(found, True, x.floor)


def _bicubic(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    _, factors = _factors(given, 2)
    return _by_matrices(x, _wanted(x, size, factors), "bicubic", corners, factors)


def _linear(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    import tensorflow as tf

    _, factors = _factors(given, 1)
    (length,) = _wanted(x, size, factors)
    matrix = _matrix(known(x.shape[2], "resizing"), length, "linear", corners, factors[0])
    return Value(tf.tensordot(x.first(), matrix, [[-1], [1]]), floor=x.floor)


def _by_matrices(x: Value, wanted: Sequence[int], mode: str, corners: bool, factors: Sequence[float | None]) -> Value:
    """Return the image resized by one matrix for the rows and one for the columns."""
    import tensorflow as tf

    rows, columns = (
        _matrix(known(have, "resizing"), want, {"bilinear": "linear"}.get(mode, mode), corners, factor)
        for have, want, factor in zip(x.shape[2:], wanted, factors, strict=True)
    )
    held = tf.tensordot(x.first(), columns, [[-1], [1]])
    return Value(tf.matmul(rows, held), floor=x.floor and mode != "bicubic")


def _matrix(have: int, want: int, mode: str, corners: bool, factor: float | None) -> np.ndarray:
    """Return the matrix that resizes one axis, by resizing each unit vector in PyTorch."""
    import torch

    units = torch.eye(have)[:, None]
    how: dict[str, Any] = {"scale_factor": factor, "recompute_scale_factor": False} if factor else {"size": want}
    if mode == "bicubic":
        how = {"scale_factor": (1.0, factor), "recompute_scale_factor": False} if factor else {"size": (1, want)}
        found = torch.nn.functional.interpolate(units[:, None], mode=mode, align_corners=corners, **how)[:, 0]
    else:
        found = torch.nn.functional.interpolate(units, mode=mode, align_corners=corners, **how)
    matrix: np.ndarray = found[:, 0].T.contiguous().numpy()
    return matrix


def _nearest(mode: str, axes: int) -> Callable[..., Value]:
    def operator(x: Value, size: Any, *given: Any) -> Value:
        import tensorflow as tf
        import torch

        _, factors = _factors(given, axes)
        wanted = _wanted(x, size, factors)
        if axes == 2 and mode == "nearest" and _plain(x, wanted, factors):
            found = tf.raw_ops.ResizeNearestNeighbor(
                images=x.last(), size=wanted, align_corners=False, half_pixel_centers=False
            )
            return Value(found, True, x.floor)
        held = x.held
        for axis, (want, factor) in enumerate(zip(wanted, factors, strict=True), 2):
            length = known(x.shape[axis], "resizing")
            places = torch.arange(length, dtype=torch.float32)[None, None]
            how = {"scale_factor": factor, "recompute_scale_factor": False} if factor else {"size": want}
            chosen = torch.nn.functional.interpolate(places, mode=mode, **how)[0, 0]
            held = tf.gather(held, chosen.numpy().astype(np.int32), axis=x.axis(axis))
        return Value(held, x.channels_last, x.floor)

    return operator


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "upsample_bilinear2d": _bilinear, "upsample_bicubic2d": _bicubic, "upsample_linear1d": _linear,
        "upsample_nearest1d": _nearest("nearest", 1), "upsample_nearest2d": _nearest("nearest", 2),
        "upsample_nearest3d": _nearest("nearest", 3), "_upsample_nearest_exact1d": _nearest("nearest-exact", 1),
        "_upsample_nearest_exact2d": _nearest("nearest-exact", 2),
    }  # fmt: skip
