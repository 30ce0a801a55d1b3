"""The reader of Darknet's networks: a ``.cfg`` file with the layers, and a ``.weights`` file with
their numbers.

Files are not trusted: every size is bounded, and the length of the weights is compared with the
layers, before memory is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.file_types import Damaged, check_there

_LARGEST = 1 << 20  # bytes; yolov3.cfg has 8,342
_MOST_SECTIONS = 1024
_MOST_OPTIONS = 256  # of a section


@dataclass(frozen=True)
class DarknetSection:
    """A section, such as ``[convolutional]``.

    Attributes
    ----------
    kind
        The name in brackets.
    line
        The number of its line.
    options
        Its options as text; spaces inside are removed, as Darknet does it.
    """

    kind: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The section in messages."""
        return f"[{self.kind}] in line {self.line}"

    def read_integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return an option that is a whole number within bounds.

        Raises
        ------
        Damaged
            If it is not.
        """
        found = self._parse_integer(name, self.options.get(name, str(default)))
        if not least <= found <= most:
            raise Damaged(f"{self.words}: {name} is {found}, not from {least} to {most}")
        return found

    def read_integers(self, name: str, most: int = 64) -> tuple[int, ...]:
        """Return an option that is a list of whole numbers, at least one; raise :class:`Damaged`
        if it is not.
        """
        parts = self._split_list(name, most)
        return tuple(self._parse_integer(name, part) for part in parts)

    def numbers(self, name: str, most: int = 64) -> tuple[float, ...]:
        """Return an option that is a list of finite numbers, none negative; raise
        :class:`Damaged` if it is not.
        """
        try:
            found = tuple(map(float, self._split_list(name, most)))
        except ValueError:
            found = ()
        if not found or not all(0 <= number < 1e6 for number in found):
            raise Damaged(f"{self.words}: {name} should be numbers that are separated by commas")
        return found

    def _split_list(self, name: str, most: int) -> list[str]:
        parts = [part for part in self.options.get(name, "").split(",") if part]
        if not 0 < len(parts) <= most:
            raise Damaged(
                f"{self.words}: {name} should be 1 to {most} numbers that are separated by commas"
            )
        return parts

    def _parse_integer(self, name: str, text: str) -> int:
        try:
            if len(text) > 12:
                raise ValueError
            return int(text)
        except ValueError:
            raise Damaged(
                f"{self.words}: {name} should be a whole number, not {text[:20]!r}"
            ) from None


def read_sections(path: Path) -> list[DarknetSection]:
    """Return the sections of a file in order.

    Raises
    ------
    ArtifactError
        If there is no such file.
    Damaged
        If it is too large, no text, or not made of sections.
    """
    check_there(path)
    with open(path, "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise Damaged(f"it is larger than {_LARGEST:,} bytes")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise Damaged("it is no text") from None
    found: list[DarknetSection] = []
    options: dict[str, str] = {}
    for number, raw in enumerate(lines, 1):
        line = "".join(raw.split())
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if not (line.endswith("]") and line[1:-1].isidentifier() and len(line) < 40):
                raise Damaged(f"line {number} is no section: {line[:40]!r}")
            if len(found) == _MOST_SECTIONS:
                raise Damaged(f"line {number} begins more than {_MOST_SECTIONS} sections")
            options = {}
            found.append(DarknetSection(line[1:-1], number, options))
            continue
        name, equals, value = line.partition("=")
        if not found or not equals or not name or len(options) == _MOST_OPTIONS:
            raise Damaged(f"line {number} is no NAME=VALUE in a section: {line[:40]!r}")
        options[name] = value
    return found


# The layers of Darknet's networks, and how sections of a ``.cfg`` file declare them.
#
# They follow ``src/parser.c``, ``src/convolutional_layer.c``, ``src/maxpool_layer.c`` and
# ``src/yolo_layer.c`` of pjreddie/darknet; ``groups`` of routes are those of AlexeyAB/darknet.

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
    """The maximum of windows; ``before`` and ``after`` are the rows and columns that lie outside
    the picture.
    """

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
    """One grid of boxes; the numbers of the layer before are an output of the network as they
    are.
    """

    anchors: tuple[tuple[float, float], ...]
    classes: int


Kind = Convolution | MaxPool | Shortcut | Route | Upsample | YOLOHead


@dataclass(frozen=True)
class DarknetLayer:
    """A layer: what it computes, the numbers of the layers it takes (-1 is the picture), and its
    output's shape.
    """

    kind: Kind
    inputs: tuple[int, ...]
    shape: Shape
    weights: int
    """The numbers that it has in a file of weights."""


def build_layer(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
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


def _get_input_shape(
    section: DarknetSection, number: int, before: list[DarknetLayer], picture: Shape
) -> Shape:
    """Return the shape that a layer gives; raise :class:`Damaged` if it is a head, which gives
    boxes.
    """
    if number < 0:
        return picture
    if isinstance(before[number].kind, YOLOHead):
        raise Damaged(f"{section.words} would take the boxes of layer {number}")
    return before[number].shape


def _get_source_layers(
    section: DarknetSection, name: str, before: list[DarknetLayer]
) -> tuple[int, ...]:
    """Return the layers that an option names, relative to this one if negative."""
    found = tuple(n + len(before) if n < 0 else n for n in section.read_integers(name))
    if not all(0 <= n < len(before) for n in found):
        raise Damaged(f"{section.words}: {name} names a layer that does not come before it")
    return found


def _get_activation(section: DarknetSection, default: str) -> str:
    found = section.options.get("activation", default)
    if found not in ACTIVATIONS:
        raise Damaged(
            f"{section.words}: activation {found[:20]!r} is none of {', '.join(ACTIVATIONS)}"
        )
    return found


def _build_convolution(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    channels, height, width = _get_input_shape(section, len(before) - 1, before, picture)
    size, stride = section.read_integer("size", 1, 1, 31), section.read_integer("stride", 1, 1, 32)
    dilation, groups = (
        section.read_integer("dilation", 1, 1, 32),
        section.read_integer("groups", 1, 1, _CHANNELS),
    )
    filters = section.read_integer("filters", 1, 1, _CHANNELS)
    own = section.read_integer("padding", 0, 0, 64)
    padding = (size // 2) * dilation if section.read_integer("pad", 0, 0, 1) else own
    for unknown in ("xnor", "binary", "flipped", "antialiasing", "share_index"):
        if section.read_integer(unknown, 0, -(1 << 31), 1 << 31):
            raise Damaged(f"{section.words}: {unknown} is not known here")
    if channels % groups or filters % groups:
        raise Damaged(
            f"{section.words}: {groups} groups divide {channels} channels and {filters} filters "
            f"not evenly"
        )
    reach = (size - 1) * dilation + 1
    rows, columns = ((side + 2 * padding - reach) // stride + 1 for side in (height, width))
    normalised = bool(section.read_integer("batch_normalize", 0, 0, 1))
    kind = Convolution(
        filters,
        size,
        stride,
        padding,
        dilation,
        groups,
        _get_activation(section, "logistic"),
        normalised,
    )
    weights = filters * (4 if normalised else 1) + filters * (channels // groups) * size**2
    return DarknetLayer(
        kind, (len(before) - 1,), _check_shape(section, (filters, rows, columns)), weights
    )


def _build_maxpool(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    channels, height, width = _get_input_shape(section, len(before) - 1, before, picture)
    stride = section.read_integer("stride", 1, 1, 32)
    size = section.read_integer("size", stride, 1, 63)
    padding = section.read_integer("padding", size - 1, 0, size - 1)
    left = padding // 2
    rows, columns = ((side + padding - size) // stride + 1 for side in (height, width))
    down, right = (
        max(0, (count - 1) * stride + size - side - left)
        for count, side in ((rows, height), (columns, width))
    )
    shape = _check_shape(section, (channels, rows, columns))
    return DarknetLayer(MaxPool(size, stride, left, (down, right)), (len(before) - 1,), shape, 0)


def _build_shortcut(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    own = _get_input_shape(section, len(before) - 1, before, picture)
    others = _get_source_layers(section, "from", before)
    if "weights_type" in section.options and section.options["weights_type"] != "none":
        raise Damaged(f"{section.words}: weights_type is not known here")
    if any(_get_input_shape(section, other, before, picture) != own for other in others):
        raise Damaged(f"{section.words} adds layers of different shapes")
    return DarknetLayer(
        Shortcut(_get_activation(section, "linear")), (len(before) - 1, *others), own, 0
    )


def _build_route(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    others = _get_source_layers(section, "layers", before)
    shapes = [_get_input_shape(section, other, before, picture) for other in others]
    parts = section.read_integer("groups", 1, 1, _CHANNELS)
    part = section.read_integer("group_id", 0, 0, parts - 1)
    if len({shape[1:] for shape in shapes}) > 1:
        raise Damaged(f"{section.words} joins layers of different heights or widths")
    if any(shape[0] % parts for shape in shapes):
        raise Damaged(f"{section.words}: {parts} groups do not divide the channels")
    channels = sum(shape[0] // parts for shape in shapes)
    return DarknetLayer(
        Route(parts, part), others, _check_shape(section, (channels, *shapes[0][1:])), 0
    )


def _build_upsample(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    channels, height, width = _get_input_shape(section, len(before) - 1, before, picture)
    stride = section.read_integer("stride", 2, 1, 32)
    if section.options.get("scale", "1") not in ("1", "1.", "1.0"):
        raise Damaged(f"{section.words}: scale is not known here")
    return DarknetLayer(
        Upsample(stride),
        (len(before) - 1,),
        _check_shape(section, (channels, height * stride, width * stride)),
        0,
    )


def _build_yolo_head(
    section: DarknetSection, before: list[DarknetLayer], picture: Shape
) -> DarknetLayer:
    shape = _get_input_shape(section, len(before) - 1, before, picture)
    if section.options.get("scale_x_y", "1") not in ("1", "1.", "1.0") or section.read_integer(
        "new_coords", 0, 0, 1
    ):
        raise Damaged(
            f"{section.words}: scale_x_y and new_coords, of versions after 3, are not known here"
        )
    numbers = section.numbers("anchors", 256)
    if len(numbers) % 2:
        raise Damaged(f"{section.words}: anchors are pairs of width and height")
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    mask = section.read_integers("mask") if "mask" in section.options else tuple(range(len(pairs)))
    if not all(0 <= n < len(pairs) for n in mask):
        raise Damaged(f"{section.words}: mask names an anchor that is not there")
    classes = section.read_integer("classes", 20, 1, _CLASSES)
    if shape[0] != len(mask) * (5 + classes):
        raise Damaged(
            f"{section.words}: {len(mask)} anchors with {classes} classes need "
            f"{len(mask) * (5 + classes)} channels, not {shape[0]}"
        )
    return DarknetLayer(
        YOLOHead(tuple(pairs[n] for n in mask), classes), (len(before) - 1,), shape, 0
    )


def _check_shape(section: DarknetSection, shape: Shape) -> Shape:
    if min(shape) < 1 or shape[0] > _CHANNELS or max(shape[1:]) > SIDE:
        raise Damaged(
            f"{section.words} gives {shape[0]} channels of {shape[1]} x {shape[2]} values"
        )
    return shape


_READERS: Mapping[str, Callable[[DarknetSection, list[DarknetLayer], Shape], DarknetLayer]] = (
    MappingProxyType(
        {
            "convolutional": _build_convolution,
            "conv": _build_convolution,
            "maxpool": _build_maxpool,
            "max": _build_maxpool,
            "shortcut": _build_shortcut,
            "route": _build_route,
            "upsample": _build_upsample,
            "yolo": _build_yolo_head,
        }
    )
)

Floats = npt.NDArray[np.float32]

_VALUES = 1 << 27  # that a layer gives for one picture
_VALUES_IN_ALL = 1 << 30
_WEIGHTS = 1 << 28  # 1 GiB; yolov3.weights has 62 million
_STABILISER = 1e-6  # that Darknet adds to standard deviations


@dataclass(frozen=True)
class DarknetNetwork:
    """The layers of a network in order, and the shape of the picture that it takes."""

    path: Path
    picture: Shape
    layers: tuple[DarknetLayer, ...]

    @property
    def weights(self) -> int:
        """The numbers in a file of weights, without its header."""
        return sum(layer.weights for layer in self.layers)

    @property
    def heads(self) -> dict[int, YOLOHead]:
        """The heads by the number of their layer."""
        return {
            n: layer.kind for n, layer in enumerate(self.layers) if isinstance(layer.kind, YOLOHead)
        }


def read_network(path: str | Path) -> DarknetNetwork:
    """Return the network of a ``.cfg`` file.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged, or has sections or sizes with which nothing can be done
        here.
    """
    path = Path(path)
    try:
        picture, *rest = read_sections(path) or [DarknetSection("", 0)]
        if picture.kind not in ("net", "network"):
            raise Damaged("it should begin with the section [net]")
        given = (
            picture.read_integer("channels", 3, 1, 4),
            picture.read_integer("height", 0, 1, SIDE),
            picture.read_integer("width", 0, 1, SIDE),
        )
        layers: list[DarknetLayer] = []
        values = weights = 0
        for section in rest:
            layer = build_layer(section, layers, given)
            values += math.prod(layer.shape)
            weights += layer.weights
            if math.prod(layer.shape) > _VALUES or values > _VALUES_IN_ALL or weights > _WEIGHTS:
                raise Damaged(
                    f"{section.words} makes the network larger than any YOLO: check its sizes"
                )
            layers.append(layer)
        found = DarknetNetwork(path, given, tuple(layers))
        if not found.heads:
            raise Damaged("it has no section [yolo]")
        return found
    except Damaged as error:
        raise ArtifactError(f"{path}: not a network of Darknet that can be read: {error}") from None


def read_weights(path: str | Path, network: DarknetNetwork) -> dict[int, tuple[Floats, Floats]]:
    """Return kernel ``(filters, channels, size, size)`` and bias ``(filters,)`` of each
    convolution, by its layer.

    Normalisation is part of them: the kernel is multiplied by ``scale / (deviation + 1e-6)``, as
    Darknet computes it.

    Raises
    ------
    ArtifactError
        If the file is missing, has another length than the network's weights, or holds numbers that
        are not finite.
    """
    path = Path(path)
    check_there(path)
    with open(path, "rb") as file:
        head = file.read(20)
        if len(head) < 16:
            raise ArtifactError(
                f"{path}: cut short; it has not even the header of Darknet's weights"
            )
        major, minor, _ = np.frombuffer(head[:12], "<i4").tolist()
        if not (0 <= major < 1000 and 0 <= minor < 1000):
            raise ArtifactError(
                f"{path}: not weights of Darknet; they begin with its version, not {major}.{minor}"
            )
        # from version 0.2 on, pictures seen are counted in 64 bits
        start = 20 if major * 10 + minor >= 2 else 16
        there, wanted = path.stat().st_size - start, 4 * network.weights
        if there != wanted:
            what = "cut short or of another network" if there < wanted else "of another network"
            raise ArtifactError(
                f"{path}: {what}; {network.path.name} has {network.weights:,} weights, the file "
                f"{max(there, 0) / 4:,g}"
            )
        file.seek(start)
        numbers = np.fromfile(file, "<f4", network.weights)
    if len(numbers) != network.weights or not np.isfinite(numbers).all():
        raise ArtifactError(f"{path}: not all weights are finite numbers; get the file again")
    return dict(_iterate_convolutions(path, network, numbers))


def _iterate_convolutions(
    path: Path, network: DarknetNetwork, numbers: Floats
) -> Iterator[tuple[int, tuple[Floats, Floats]]]:
    place = 0
    for number, layer in enumerate(network.layers):
        kind = layer.kind
        if not isinstance(kind, Convolution):
            continue
        own = numbers[place : place + layer.weights]
        place += layer.weights
        vectors = own[: kind.filters * (4 if kind.normalised else 1)].reshape(-1, kind.filters)
        kernel = own[vectors.size :].reshape(kind.filters, -1, kind.size, kind.size)
        bias = vectors[0]
        if kind.normalised:
            scale, mean, variance = vectors[1:].astype(np.float64)
            if (variance < 0).any():
                raise ArtifactError(
                    f"{path}: layer {number} has a negative variance; get the file again"
                )
            factor = scale / (np.sqrt(variance) + _STABILISER)
            kernel = (kernel * factor[:, None, None, None]).astype(np.float32)
            bias = (bias - mean * factor).astype(np.float32)
        yield number, (np.ascontiguousarray(kernel), np.ascontiguousarray(bias))
