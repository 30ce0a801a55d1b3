"""Stands in for Matplotlib's rendering, which takes nine tenths of a small training with pictures.

No pytest here, so that processes may import it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def sketching() -> Iterator[None]:
    """Save figures as pictures of 8 x 4 pixels, which differ where the data or texts in the
    figures do.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:  # nothing is drawn
        yield
        return
    render = Figure.savefig
    Figure.savefig = _save
    try:
        yield
    finally:
        Figure.savefig = render


def _save(figure: Any, path: Path, *, format: str, dpi: int, metadata: dict[str, Any]) -> None:
    from PIL import Image

    found = hashlib.sha256(
        repr((dpi, sorted(metadata), figure.get_size_inches().tolist())).encode()
    )
    for axes in figure.axes:
        for artist in (
            *figure.texts,
            axes.title,
            axes.xaxis.label,
            axes.yaxis.label,
            *axes.get_children(),
        ):
            found.update(type(artist).__name__.encode())
            for part in ("get_text", "get_xydata", "get_array", "get_offsets", "get_path"):
                if hasattr(artist, part):
                    found.update(_bytes(getattr(artist, part)()))
    Image.frombytes("L", (8, 4), found.digest()).save(path, format)


def _bytes(value: Any) -> bytes:
    vertices = getattr(value, "vertices", value)
    return (
        vertices.encode()
        if isinstance(vertices, str)
        else np.ascontiguousarray(vertices, float).tobytes()
    )
