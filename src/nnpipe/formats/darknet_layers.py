"""The layers of Darknet's networks, and how sections of a ``.cfg`` file declare them.

They follow ``src/parser.c``, ``src/convolutional_layer.c``, ``src/maxpool_layer.c`` and ``src/yolo_layer.c`` of
pjreddie/darknet; ``groups`` of routes are those of AlexeyAB/darknet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nnpipe.formats._errors import Damaged
from nnpipe.formats.darknet_cfg import DarknetSection

Shape = tuple[int, int, int]
"""Channels, height and width."""

ACTIVATIONS = ("linear", "leaky", "relu", "logistic", "mish", "swish")
"""The activation functions that are known; ``leaky`` has a slope of 0.1 below zero."""

SIDE = 8192
"""The greatest height or width."""
_CHANNELS, _CLASSES = 1 << 16, 1 << 14


@dataclass(frozen=True)
class Convolution:
    """A convolution with its bias or normalisation, and its activation function."""

    filters: int
    size: int
    stride: int
    padding: int
    dilation: int
    groups: int
    activation: str
    normalised: bool


@dataclass(frozen=True)
class MaxPool:
    """The maximum of windows; ``before`` and ``after`` are the rows and columns that lie outside the picture."""

    size: int
    stride: int
    before: int
    after: tuple[int, int]


@dataclass(frozen=True)
class Shortcut:
    """The sum of the layer before and another one."""

    activation: str


@dataclass(frozen=True)
class Route:
    """The channels of other layers, one after the other: of each, part ``part`` of ``parts``."""

    parts: int
    part: int


@dataclass(frozen=True)
class Upsample:
    """Each value as a square of ``stride`` by ``stride``."""

    stride: int


@dataclass(frozen=True)
class YOLOHead:
    """One grid of boxes; the numbers of the layer before are an output of the network as they are."""

    anchors: tuple[tuple[float, float], ...]
    classes: int


Kind = Convolution | MaxPool | Shortcut | Route | Upsample | YOLOHead


@dataclass(frozen=True)
class DarknetLayer:
    """A layer: what it computes, the numbers of the layers it takes (-1 is the picture), and its output's shape."""

    kind: Kind
    inputs: tuple[int, ...]
    shape: Shape
    weights: int
    """The numbers that it has in a file of weights."""


def layer_of(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    """Return the layer that a section declares.

    Parameters
    ----------
    section
        The section.
    before
        The layers before it.
    picture
        The shape of the network's input.

    Raises
    ------
    Damaged
        If its options are wrong, too large, or not known here.
    """
    if section.kind not in _READERS:
        raise Damaged(f"{section.words} is none of {', '.join(_READERS)}")
    return _READERS[section.kind](section, before, picture)


def _taken(section: DarknetSection, number: int, before: list[DarknetLayer], picture: Shape) -> Shape:
    """Return the shape that a layer gives; raise :class:`Damaged` if it is a head, which gives boxes."""
    if number < 0:
        return picture
    if isinstance(before[number].kind, YOLOHead):
        raise Damaged(f"{section.words} would take the boxes of layer {number}")
    return before[number].shape


def _others(section: DarknetSection, name: str, before: list[DarknetLayer]) -> tuple[int, ...]:
    """Return the layers that an option names, relative to this one if negative."""
    found = tuple(n + len(before) if n < 0 else n for n in section.integers(name))
    if not all(0 <= n < len(before) for n in found):
        raise Damaged(f"{section.words}: {name} names a layer that does not come before it")
    return found


def _activation(section: DarknetSection, default: str) -> str:
    found = section.options.get("activation", default)
    if found not in ACTIVATIONS:
        raise Damaged(f"{section.words}: activation {found[:20]!r} is none of {', '.join(ACTIVATIONS)}")
    return found


def _convolution(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    channels, height, width = _taken(section, len(before) - 1, before, picture)
    size, stride = section.integer("size", 1, 1, 31), section.integer("stride", 1, 1, 32)
    dilation, groups = section.integer("dilation", 1, 1, 32), section.integer("groups", 1, 1, _CHANNELS)
    filters = section.integer("filters", 1, 1, _CHANNELS)
    own = section.integer("padding", 0, 0, 64)
    padding = (size // 2) * dilation if section.integer("pad", 0, 0, 1) else own
    for unknown in ("xnor", "binary", "flipped", "antialiasing", "share_index"):
        if section.integer(unknown, 0, -(1 << 31), 1 << 31):
            raise Damaged(f"{section.words}: {unknown} is not known here")
    if channels % groups or filters % groups:
        raise Damaged(f"{section.words}: {groups} groups divide {channels} channels and {filters} filters not evenly")
    reach = (size - 1) * dilation + 1
    rows, columns = ((side + 2 * padding - reach) // stride + 1 for side in (height, width))
    normalised = bool(section.integer("batch_normalize", 0, 0, 1))
    kind = Convolution(filters, size, stride, padding, dilation, groups, _activation(section, "logistic"), normalised)
    weights = filters * (4 if normalised else 1) + filters * (channels // groups) * size**2
    return DarknetLayer(kind, (len(before) - 1,), _positive(section, (filters, rows, columns)), weights)


def _maxpool(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    channels, height, width = _taken(section, len(before) - 1, before, picture)
    stride = section.integer("stride", 1, 1, 32)
    size = section.integer("size", stride, 1, 63)
    padding = section.integer("padding", size - 1, 0, size - 1)
    left = padding // 2
    rows, columns = ((side + padding - size) // stride + 1 for side in (height, width))
    down, right = (
        max(0, (count - 1) * stride + size - side - left) for count, side in ((rows, height), (columns, width))
    )
    shape = _positive(section, (channels, rows, columns))
    return DarknetLayer(MaxPool(size, stride, left, (down, right)), (len(before) - 1,), shape, 0)


def _shortcut(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    own = _taken(section, len(before) - 1, before, picture)
    others = _others(section, "from", before)
    if "weights_type" in section.options and section.options["weights_type"] != "none":
        raise Damaged(f"{section.words}: weights_type is not known here")
    if any(_taken(section, other, before, picture) != own for other in others):
        raise Damaged(f"{section.words} adds layers of different shapes")
    return DarknetLayer(Shortcut(_activation(section, "linear")), (len(before) - 1, *others), own, 0)


def _route(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    others = _others(section, "layers", before)
    shapes = [_taken(section, other, before, picture) for other in others]
    parts = section.integer("groups", 1, 1, _CHANNELS)
    part = section.integer("group_id", 0, 0, parts - 1)
    if len({shape[1:] for shape in shapes}) > 1:
        raise Damaged(f"{section.words} joins layers of different heights or widths")
    if any(shape[0] % parts for shape in shapes):
        raise Damaged(f"{section.words}: {parts} groups do not divide the channels")
    channels = sum(shape[0] // parts for shape in shapes)
    return DarknetLayer(Route(parts, part), others, _positive(section, (channels, *shapes[0][1:])), 0)


def _upsample(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    channels, height, width = _taken(section, len(before) - 1, before, picture)
    stride = section.integer("stride", 2, 1, 32)
    if section.options.get("scale", "1") not in ("1", "1.", "1.0"):
        raise Damaged(f"{section.words}: scale is not known here")
    return DarknetLayer(
        Upsample(stride), (len(before) - 1,), _positive(section, (channels, height * stride, width * stride)), 0
    )


def _yolo(section: DarknetSection, before: list[DarknetLayer], picture: Shape) -> DarknetLayer:
    shape = _taken(section, len(before) - 1, before, picture)
    if section.options.get("scale_x_y", "1") not in ("1", "1.", "1.0") or section.integer("new_coords", 0, 0, 1):
        raise Damaged(f"{section.words}: scale_x_y and new_coords, of versions after 3, are not known here")
    numbers = section.numbers("anchors", 256)
    if len(numbers) % 2:
        raise Damaged(f"{section.words}: anchors are pairs of width and height")
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    mask = section.integers("mask") if "mask" in section.options else tuple(range(len(pairs)))
    if not all(0 <= n < len(pairs) for n in mask):
        raise Damaged(f"{section.words}: mask names an anchor that is not there")
    classes = section.integer("classes", 20, 1, _CLASSES)
    if shape[0] != len(mask) * (5 + classes):
        raise Damaged(
            f"{section.words}: {len(mask)} anchors with {classes} classes need {len(mask) * (5 + classes)} channels, "
            f"not {shape[0]}"
        )
    return DarknetLayer(YOLOHead(tuple(pairs[n] for n in mask), classes), (len(before) - 1,), shape, 0)


def _positive(section: DarknetSection, shape: Shape) -> Shape:
    if min(shape) < 1 or shape[0] > _CHANNELS or max(shape[1:]) > SIDE:
        raise Damaged(f"{section.words} gives {shape[0]} channels of {shape[1]} x {shape[2]} values")
    return shape


_READERS: Mapping[str, Callable[[DarknetSection, list[DarknetLayer], Shape], DarknetLayer]] = MappingProxyType({
    "convolutional": _convolution, "conv": _convolution, "maxpool": _maxpool, "max": _maxpool, "shortcut": _shortcut,
    "route": _route, "upsample": _upsample, "yolo": _yolo,
})  # fmt: skip
