"""The writer of drawings as PNG files, which uses matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from nnpipe.core.errors import MissingDependency
from nnpipe.report.drawing.shapes import COLOURS, Drawing, Path, Photo, Raster, Shape, Words

_DOTS = 144  # dots per inch, which is twice the size of the SVG


def to_png(drawing: Drawing) -> bytes:
    """Return a drawing as the content of a PNG file.

    Raises
    ------
    MissingDependency
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency(
            "PNG pictures need matplotlib, which is not installed: pip install 'nnpipe[report]', or use SVG"
        ) from None
    figure = Figure((drawing.width / 72, drawing.height / 72), dpi=_DOTS, facecolor=COLOURS["page"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0), autoscale_on=False)
    for level, shape in enumerate(drawing.shapes):
        _put(axes, shape, level)
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may be in any script
        FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # the same report gives the same file
    return target.getvalue()


def _put(axes: Any, shape: Shape, level: int) -> None:
    if isinstance(shape, Words):
        _put_words(axes, shape, level)
    elif isinstance(shape, Raster):
        red, green, blue = bytes.fromhex(COLOURS[shape.colour][1:])
        pixels = np.empty((*shape.opacities.shape, 4), np.uint8)
        pixels[..., :3], pixels[..., 3] = (red, green, blue), shape.opacities
        extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
        axes.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=level)
    elif isinstance(shape, Photo):
        _put_photo(axes, shape, level)
    else:
        _put_path(axes, shape, level)


def _put_photo(axes: Any, shape: Photo, level: int) -> None:
    try:
        from PIL import Image

        with Image.open(io.BytesIO(shape.content), formats=("JPEG",)) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (ImportError, OSError, ValueError, SyntaxError):  # a result file may hold anything
        return
    extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
    axes.imshow(pixels, extent=extent, interpolation="bilinear", aspect="auto", zorder=level)


def _put_path(axes: Any, shape: Path, level: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    outlines = [Outline(np.vstack([p, p[:1]]) if shape.fill else p, closed=bool(shape.fill)) for p in shape.parts]
    if not outlines:
        return
    axes.add_patch(
        PathPatch(
            Outline.make_compound_path(*outlines),
            facecolor=COLOURS[shape.fill] if shape.fill else "none",
            edgecolor=COLOURS[shape.stroke] if shape.stroke else "none",
            linewidth=shape.width if shape.stroke else 0,
            linestyle=(0, (4 / shape.width, 2 / shape.width)) if shape.dashed else "solid",
            alpha=shape.opacity,
            capstyle="butt",
            joinstyle="round",
            zorder=level,
        )
    )


def _put_words(axes: Any, shape: Words, level: int) -> None:
    sides = {"start": "left", "middle": "center", "end": "right"}
    axes.text(
        shape.x,
        shape.y,
        shape.text,
        fontsize=shape.size,
        color=COLOURS[shape.colour],
        ha=sides[shape.anchor],
        va="baseline",
        rotation=90 if shape.upright else 0,
        rotation_mode="anchor",
        fontfamily="DejaVu Sans",
        # Names of classes are plain text; a dollar sign in them does not start a formula.
        parse_math=False,
        zorder=level,
    )
