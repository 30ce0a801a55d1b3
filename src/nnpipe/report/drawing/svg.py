"""The writer of drawings as SVG: as a file, or as an element of a page with the page's colours and fonts."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import numpy as np

from nnpipe.core.foreign_text import html_text
from nnpipe.report.charts import Floats
from nnpipe.report.drawing.shapes import COLOURS, Drawing, Path, Photo, Raster, Shape, Words
from nnpipe.report.formatting import clean

_FONTS = "DejaVu Sans, Verdana, Noto Sans, Liberation Sans, Arial, sans-serif"
_VARIABLE = re.compile(r'(?<==")var\(--([a-z0-9-]+)\)(?=")')
_REACH = 4000  # tenths of a point up to which the text of a number is taken from a table
_FAR = 1e6  # coordinates in points are clipped to this, far outside every picture
# Negative numbers are found in the second half, by negative indices.
_TENTHS = [f"{tenths / 10:g}" for tenths in (*range(_REACH), *range(-_REACH, 0))]


def body(drawing: Drawing) -> str:
    """Return the content of the SVG element, with colours as CSS variables."""
    return "".join(_element(shape) for shape in drawing.shapes)


def inline(drawing: Drawing, body: str, description: str) -> str:
    """Return an SVG element for a page; it has no ids that could clash, and takes the available width.

    Parameters
    ----------
    drawing
        The drawing, for its size.
    body
        The result of :func:`body`.
    description
        The description for screen readers.
    """
    text = html_text(clean(description))
    return f'<svg class="plot" role="img" aria-label="{text}" viewBox="{_box(drawing)}">{body}</svg>'


def standalone(drawing: Drawing, body: str, title: str, description: str) -> str:
    """Return the content of an SVG file with fixed colours on a white background, a title and a description."""
    size = f'width="{drawing.width:g}pt" height="{drawing.height:g}pt" viewBox="{_box(drawing)}"'
    plain = _VARIABLE.sub(lambda found: COLOURS[found[1]], body)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="{_FONTS}">\n'
        f"<title>{html_text(clean(title))}</title>\n<desc>{html_text(clean(description))}</desc>\n"
        f'<rect width="100%" height="100%" fill="{COLOURS["page"]}"/>\n{plain}\n</svg>\n'
    )


def _box(drawing: Drawing) -> str:
    return f"0 0 {drawing.width:g} {drawing.height:g}"


def _element(shape: Shape) -> str:
    if isinstance(shape, Path):
        return _path(shape)
    if isinstance(shape, Photo):
        return _image(shape, shape.content, "jpeg", "")
    return _words(shape) if isinstance(shape, Words) else _raster(shape)


def _path(shape: Path) -> str:
    data = "".join(_outline(part, bool(shape.fill)) for part in shape.parts)
    look = [f'fill="var(--{shape.fill})"' if shape.fill else 'fill="none"']
    if shape.stroke:
        look += [f'stroke="var(--{shape.stroke})"', f'stroke-width="{shape.width:g}"']
    if shape.opacity < 1:
        look.append(f'opacity="{shape.opacity:.3g}"')
    if shape.dashed:
        look.append('stroke-dasharray="4 2"')
    inside = f"><title>{html_text(clean(shape.tip))}</title></path>" if shape.tip else "/>"
    return f'<path d="{data}" {" ".join(look)}{inside}'


def _outline(part: Floats, closed: bool) -> str:
    # Each point is relative to the one before, in whole tenths: this is short, and rounding errors do not add up.
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


def _words(shape: Words) -> str:
    text = html_text(shape.text)
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    if shape.upright:
        place = f'transform="translate({shape.x:.1f} {shape.y:.1f})rotate(-90)"'
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    return f'<text {place} font-size="{shape.size:.3g}"{anchor} fill="var(--{shape.colour})">{text}</text>'


def _raster(shape: Raster) -> str:
    return _image(shape, _png(shape), "png", ' style="image-rendering:pixelated"')


def _image(shape: Raster | Photo, content: bytes, kind: str, look: str) -> str:
    data = base64.b64encode(content).decode("ascii")
    place = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
    return f'<image {place} preserveAspectRatio="none"{look} href="data:image/{kind};base64,{data}"/>'


def _png(shape: Raster) -> bytes:
    """Return opacities of one colour as PNG with a palette (W3C, "Portable Network Graphics", 3rd edition, 2025)."""
    rows, columns = shape.opacities.shape
    colour = bytes.fromhex(COLOURS[shape.colour][1:])
    lines = np.zeros((rows, columns + 1), np.uint8)  # each line starts with the number of its filter; 0 means none
    lines[:, 1:] = shape.opacities
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", 256 * colour),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    )
    chunks = (struct.pack(">I", len(data)) + name + data + _checksum(name + data) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))
