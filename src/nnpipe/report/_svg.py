"""Making a picture part of a page: its colours and letters become the page's own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from nnpipe.report._drawing import FAINT, INK, MUTED, SERIES, SURFACE
from nnpipe.report.wording import clean

_XLINK = "{http://www.w3.org/1999/xlink}href"
_VARIABLES = {INK: "ink", MUTED: "muted", FAINT: "line", SURFACE: "page"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES)
}
_COLOUR = re.compile("|".join(_VARIABLES))
_FONT = re.compile(r"font-family: [^;]*;? ?|(?<=px) '[^;]*")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def inline(svg: str, prefix: str, description: str) -> str:
    """Turn an SVG file into an element for a page.

    Names in it get a prefix, since a page has many pictures; colours become
    variables, since a page has a light and a dark side; style sheets, which
    would hold for the whole page, and everything that names an address go.

    Parameters
    ----------
    svg
        The file's text, as matplotlib writes it.
    prefix
        Letters and digits, different for each picture.
    description
        What those hear who cannot see it.
    """
    root = ElementTree.fromstring(svg)
    _without(root, {"metadata", "style"})
    used = _names_in_use(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        target = element.attrib.pop(_XLINK, None)
        if target is not None:
            element.set("href", f"#{prefix}{target[1:]}" if target.startswith("#") else target)
        name = element.get("id")
        if name in used:
            element.set("id", prefix + name)
        elif name is not None:
            del element.attrib["id"]
        if "clip-path" in element.attrib:
            element.set("clip-path", _REFERENCE.sub(rf"url(#{prefix}\1)", element.attrib["clip-path"]))
        if "style" in element.attrib:
            style = _FONT.sub("", element.attrib["style"])
            element.set("style", _COLOUR.sub(lambda found: f"var(--{_VARIABLES[found[0]]})", style))
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
        if not (element.text or "").strip():
            element.text = None
        element.tail = None
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "aria-label": clean(description), "class": "plot"}
    return ElementTree.tostring(root, encoding="unicode")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _without(element: ElementTree.Element, unwanted: set[str]) -> None:
    for child in list(element):
        if _local(child.tag) in unwanted:
            element.remove(child)
        else:
            _without(child, unwanted)


def _names_in_use(root: ElementTree.Element) -> set[str]:
    found: set[str] = set()
    for element in root.iter():
        target = element.get(_XLINK, "")
        if target.startswith("#"):
            found.add(target[1:])
        for value in element.attrib.values():
            found.update(_REFERENCE.findall(value))
    return found
