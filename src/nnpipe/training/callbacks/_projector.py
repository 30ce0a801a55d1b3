"""Files of TensorBoard's embedding projector: points, with labels and a small picture of each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.files import replacing, write_text
from nnpipe.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

_TILE = 32
_SIDE = 8192
"""The largest sprite that a browser shows."""


def tile_of(image: np.ndarray) -> np.ndarray:
    """Shrink or enlarge a picture ``(rows, columns)`` or ``(rows, columns, 3)`` from 0 to 1 to 32 x 32 x 3 bytes."""
    from PIL import Image

    picture = Image.fromarray(np.uint8(np.rint(image * 255)))
    # Small pictures keep their pixels, large ones their brightness.
    way = Image.Resampling.BOX if max(image.shape[:2]) > _TILE else Image.Resampling.NEAREST
    return np.asarray(picture.resize((_TILE, _TILE), way).convert("RGB"))


def write_points(
    folder: RunFolder,
    name: str,
    points: np.ndarray,
    columns: Mapping[str, Sequence[Any]],
    tiles: Sequence[np.ndarray] | None,
) -> str:
    """Write an embedding, and return its entry for the projector's configuration.

    Parameters
    ----------
    folder
        The run's folder.
    name
        The name that the projector shows.
    points
        Features ``(n, features)``.
    columns
        The labels of each point, by title.
    tiles
        Pictures ``(32, 32, 3)`` of 8 bits, one a point; more than 65,536 are left out.
    """
    points = np.nan_to_num(points.reshape(len(points), -1).astype(np.float32))
    lines = ("\t".join(f"{value:.7g}" for value in row) for row in points.tolist())
    _write(folder.projected(name, "tensors.tsv"), lines)
    rows: list[str] = ["\t".join(_cell(value) for value in row) for row in zip(*columns.values(), strict=True)]
    # A single column has no title: the projector would take it for a point.
    _write(folder.projected(name, "metadata.tsv"), ["\t".join(columns), *rows] if len(columns) > 1 else rows)
    own = folder.projected(name, "").name
    told = [
        "embeddings {", f"  tensor_name: {_text(name)}", f"  tensor_path: {_text(f'{own}/tensors.tsv')}",
        f"  tensor_shape: {points.shape[0]}", f"  tensor_shape: {points.shape[1]}",
        f"  metadata_path: {_text(f'{own}/metadata.tsv')}",
    ]  # fmt: skip
    if tiles and math.ceil(math.sqrt(len(tiles))) * _TILE <= _SIDE:
        _write_sprite(folder.projected(name, "sprite.png"), tiles)
        told += [
            "  sprite {", f"    image_path: {_text(f'{own}/sprite.png')}", f"    single_image_dim: {_TILE}",
            f"    single_image_dim: {_TILE}", "  }",
        ]  # fmt: skip
    return "\n".join([*told, "}"]) + "\n"


def _write_sprite(path: Path, tiles: Sequence[np.ndarray]) -> None:
    """Write pictures side by side, row by row, into a square one."""
    from PIL import Image

    side = math.ceil(math.sqrt(len(tiles)))
    whole = np.zeros((side, _TILE, side, _TILE, 3), np.uint8)
    for number, tile in enumerate(tiles):
        whole[number // side, :, number % side] = tile
    with replacing(path) as partial:
        Image.fromarray(whole.reshape(side * _TILE, side * _TILE, 3)).save(partial, format="png")


def _write(path: Path, lines: Any) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def _cell(value: Any) -> str:
    return " ".join(str(value).split())  # neither tabs nor new lines


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
