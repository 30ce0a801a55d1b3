"""Charts as SVG and PNG pictures in one style.

Pictures are narrow, 380 points, so that their text can be read on a telephone.
They are meant to be shown up to one and a half times as large.
"""

from __future__ import annotations

import base64
import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from nnpipe.core.errors import MissingDependency
from nnpipe.core.foreign_text import escape_html
from nnpipe.report.charts import (
    Areas,
    Bars,
    BoxedFrame,
    BoxGraph,
    Chart,
    Distributions,
    DotPlot,
    Floats,
    Heatmap,
    Histogram,
    Intervals,
    Lines,
    ParallelAxes,
    Points,
    Scatter,
    StackedBars,
)
from nnpipe.report.document import Plot
from nnpipe.report.drawing import candidate_charts, class_charts, graph_charts, line_charts
from nnpipe.report.drawing.shapes import COLOURS, Drawing, Path, Photo, Raster, Shape, TextLine
from nnpipe.report.formatting import clean

_DRAWERS: dict[type[Any], Callable[[Any], Drawing]] = {
    Lines: line_charts.draw_lines,
    Areas: line_charts.draw_areas,
    Histogram: line_charts.draw_histogram,
    Distributions: candidate_charts.draw_distributions,
    Bars: candidate_charts.draw_bars,
    StackedBars: candidate_charts.draw_stacked_bars,
    Scatter: candidate_charts.draw_scatter,
    Intervals: candidate_charts.draw_intervals,
    Heatmap: class_charts.draw_heatmap,
    DotPlot: class_charts.draw_dot_plot,
    BoxedFrame: graph_charts.draw_boxed_frame,
    BoxGraph: graph_charts.draw_box_graph,
    Points: line_charts.draw_points,
    ParallelAxes: line_charts.draw_parallel_axes,
}


def draw(chart: Chart) -> Drawing:
    """Return the drawing of a chart."""
    return _DRAWERS[type(chart)](chart)


_FONTS = "DejaVu Sans, Verdana, Noto Sans, Liberation Sans, Arial, sans-serif"
_VARIABLE = re.compile(r'(?<==")var\(--([a-z0-9-]+)\)(?=")')
_REACH = 4000  # tenths of a point up to which the text of a number is taken from a table
_FAR = 1e6  # coordinates in points are clipped to this, far outside every picture
# Negative numbers are found in the second half, by negative indices.
_TENTHS = [f"{tenths / 10:g}" for tenths in (*range(_REACH), *range(-_REACH, 0))]


def render_svg_body(drawing: Drawing) -> str:
    """Return the content of the SVG element, with colours as CSS variables."""
    return "".join(_render_shape(shape) for shape in drawing.shapes)


def render_inline_svg(drawing: Drawing, body: str, description: str) -> str:
    """Return an SVG element for a page; it has no ids that could clash, and takes the available
    width.

    Parameters
    ----------
    drawing
        The drawing, for its size.
    body
        The result of :func:`render_svg_body`.
    description
        The description for screen readers.
    """
    text = escape_html(clean(description))
    return (
        f'<svg class="plot" role="img" aria-label="{text}" '
        f'viewBox="{_format_view_box(drawing)}">{body}</svg>'
    )


def render_standalone_svg(drawing: Drawing, body: str, title: str, description: str) -> str:
    """Return the content of an SVG file with fixed colours on a white background, a title and a
    description.
    """
    size = (
        f'width="{drawing.width:g}pt" height="{drawing.height:g}pt" '
        f'viewBox="{_format_view_box(drawing)}"'
    )
    plain = _VARIABLE.sub(lambda found: COLOURS[found[1]], body)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="{_FONTS}">\n'
        f"<title>{escape_html(clean(title))}</title>\n<desc>{escape_html(clean(description))}</desc>\n"
        f'<rect width="100%" height="100%" fill="{COLOURS["page"]}"/>\n{plain}\n</svg>\n'
    )


def _format_view_box(drawing: Drawing) -> str:
    return f"0 0 {drawing.width:g} {drawing.height:g}"


def _render_shape(shape: Shape) -> str:
    if isinstance(shape, Path):
        return _render_path(shape)
    if isinstance(shape, Photo):
        return _render_image(shape, shape.content, "jpeg", "")
    return _render_text(shape) if isinstance(shape, TextLine) else _render_raster(shape)


def _render_path(shape: Path) -> str:
    data = "".join(_format_path_data(part, bool(shape.fill)) for part in shape.parts)
    look = [f'fill="var(--{shape.fill})"' if shape.fill else 'fill="none"']
    if shape.stroke:
        look += [f'stroke="var(--{shape.stroke})"', f'stroke-width="{shape.width:g}"']
    if shape.opacity < 1:
        look.append(f'opacity="{shape.opacity:.3g}"')
    if shape.dashed:
        look.append('stroke-dasharray="4 2"')
    inside = f"><title>{escape_html(clean(shape.tip))}</title></path>" if shape.tip else "/>"
    return f'<path d="{data}" {" ".join(look)}{inside}'


def _format_path_data(part: Floats, closed: bool) -> str:
    # Each point is relative to the one before, in whole tenths: this is short, and rounding errors
    # do not add up.
    tenths = np.rint(10 * part.clip(-_FAR, _FAR)).astype(np.int64)
    tenths[1:] -= tenths[:-1].copy()
    numbers = tenths.ravel().tolist()
    if min(numbers) >= -_REACH and max(numbers) < _REACH:
        words = [_TENTHS[number] for number in numbers]
    else:
        words = [f"{number / 10:g}" for number in numbers]
    first, rest = f"M{words[0]} {words[1]}", " ".join(words[2:])
    # A minus sign separates numbers like a space.
    return first + (f"l{rest}" if rest else "").replace(" -", "-") + ("z" if closed else "")


def _render_text(shape: TextLine) -> str:
    text = escape_html(shape.text)
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    if shape.upright:
        place = f'transform="translate({shape.x:.1f} {shape.y:.1f})rotate(-90)"'
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    return (
        f'<text {place} font-size="{shape.size:.3g}"{anchor} '
        f'fill="var(--{shape.colour})">{text}</text>'
    )


def _render_raster(shape: Raster) -> str:
    return _render_image(shape, _encode_png(shape), "png", ' style="image-rendering:pixelated"')


def _render_image(shape: Raster | Photo, content: bytes, kind: str, look: str) -> str:
    data = base64.b64encode(content).decode("ascii")
    place = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
    return (
        f'<image {place} preserveAspectRatio="none"{look} href="data:image/{kind};base64,{data}"/>'
    )


def _encode_png(shape: Raster) -> bytes:
    """Return opacities of one colour as PNG with a palette (W3C, "Portable Network Graphics",
    3rd edition, 2025).
    """
    rows, columns = shape.opacities.shape
    colour = bytes.fromhex(COLOURS[shape.colour][1:])
    # each line starts with the number of its filter; 0 means none
    lines = np.zeros((rows, columns + 1), np.uint8)
    lines[:, 1:] = shape.opacities
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", 256 * colour),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + _pack_checksum(name + data)
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _pack_checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


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
            "PNG pictures need matplotlib, which is not installed: pip install 'nnpipe[report]', "
            "or use SVG"
        ) from None
    figure = Figure((drawing.width / 72, drawing.height / 72), dpi=_DOTS, facecolor=COLOURS["page"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0), autoscale_on=False)
    for level, shape in enumerate(drawing.shapes):
        _put(axes, shape, level)
    target = io.BytesIO()
    with warnings.catch_warnings():
        # names may be in any script
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # the same report gives the same file
        FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})
    return target.getvalue()


def _put(axes: Any, shape: Shape, level: int) -> None:
    if isinstance(shape, TextLine):
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

    outlines = [
        Outline(np.vstack([p, p[:1]]) if shape.fill else p, closed=bool(shape.fill))
        for p in shape.parts
    ]
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


def _put_words(axes: Any, shape: TextLine, level: int) -> None:
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


class Pictures:
    """A renderer of plots that draws each plot only once for all files that show it."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[Plot, Drawing, str]] = {}

    def render_svg(self, figure: Plot) -> str:
        """Return the picture as the content of an SVG file."""
        drawing, body = self._get_body(figure)
        return render_standalone_svg(drawing, body, figure.caption, figure.alt)

    def render_inline(self, figure: Plot) -> str:
        """Return the picture as an SVG element for a page that defines its colours as CSS
        variables.
        """
        drawing, body = self._get_body(figure)
        return render_inline_svg(drawing, body, figure.alt)

    def render_png(self, figure: Plot) -> bytes:
        """Return the picture as the content of a PNG file, at twice the size of the SVG.

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        return to_png(draw(figure.chart))

    def _get_body(self, figure: Plot) -> tuple[Drawing, str]:
        found = self._drawn.get(id(figure))
        if found is None:
            drawing = draw(figure.chart)
            # The plot is kept with its picture, so that no other plot can get its id().
            found = self._drawn[id(figure)] = (figure, drawing, render_svg_body(drawing))
        return found[1:]
