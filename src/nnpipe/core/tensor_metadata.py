"""How samples are prepared for one input of a model, and what one of its outputs means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from nnpipe.core.errors import ConfigError, NNPipeError

InputKind = Literal["image", "features", "other"]
OutputKind = Literal[
    "probabilities", "logits", "scores", "label", "boxes", "mask", "value", "features"
]
Quantised = Literal["auto", "raw", "already"]

# Limits on what is read from a file.
_MOST_NUMBERS, _MOST_CLASSES, _LONGEST = 1 << 16, 1 << 20, 1024
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": (*get_args(InputKind), *get_args(OutputKind)),
    "channel_order": ("rgb", "bgr"),
    "colours": ("keep", "convert"),
    "layout": ("auto", "nhwc", "nchw"),
    "resize": ("none", "bilinear", "bicubic"),
    "fit": ("squeeze", "letterbox", "letterbox-centre"),
    "quantised": get_args(Quantised),
}
T = TypeVar("T")


@dataclass(frozen=True)
class InputProcessing:
    """How samples are prepared for one input of a model.

    The steps are, each only if it is asked for: apply the transform, convert and reorder colours,
    resize the image, divide every number by ``scale``, subtract ``mean``, divide
    by ``deviation``, reorder the axes, and convert to the input's element type.

    Parameters
    ----------
    name
        The name of the input.
    kind
        The kind of its samples.
    sample_range
        The least and greatest number in the samples for which the model was made, before any step.
    observed_range
        The least and greatest number that a quantiser observed, after all steps but the last.
    scale, mean, deviation
        One number, or one for each channel in the model's order.
    channel_order
        The order of colour channels in the model's input.
    colours
        ``"convert"``: grey samples are converted to colour, or colour samples to grey, if the model
        needs it.
    layout
        Whether channels come last or first; ``"auto"`` derives it from the input's shape.
    resize
        How images are resized to the model's size; ``"none"``: images of another size are refused.
    size
        Height and width in pixels to resize images to, if the input's shape leaves them free.
    shortest_edge
        If given, images that are resized get this length of the shorter side, in pixels, and their
        centre of the model's size is cut out; otherwise the whole image is brought to the model's
        size.
    fit
        How a whole image is brought to the model's size: ``"squeeze"`` changes its aspect ratio;
        ``"letterbox"`` keeps it, and places the image in the top left corner,
        ``"letterbox-centre"`` in the centre.
    fill
        The value of pixels, before all other numbers are computed, that a letterbox leaves over.
    quantised
        How numbers are converted to integers: by the input's scale and zero point (``"auto"``); as
        pixel values, shifted for int8 (``"raw"``); or not at all, since the samples are quantised
        already (``"already"``).
    transform
        The transform of raw samples that comes first, such as a spectrogram: a component's class
        and arguments, as :meth:`nnpipe.core.component.Component.describe` gives them.

    Examples
    --------
    >>> pixels = InputProcessing("image", "image", sample_range=(0, 255), scale=255)
    >>> pixels.format_description()
    'divided by 255'
    >>> InputProcessing.from_json(pixels.to_json()) == pixels
    True
    """

    name: str
    kind: InputKind = "features"
    sample_range: tuple[float, float] | None = None
    observed_range: tuple[float, float] | None = None
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    channel_order: Literal["rgb", "bgr"] = "rgb"
    colours: Literal["keep", "convert"] = "keep"
    layout: Literal["auto", "nhwc", "nchw"] = "auto"
    resize: Literal["none", "bilinear", "bicubic"] = "none"
    size: tuple[int, int] | None = None
    shortest_edge: int | None = None
    fit: Literal["squeeze", "letterbox", "letterbox-centre"] = "squeeze"
    fill: float = 114.0
    quantised: Quantised = "auto"
    transform: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check(self, get_args(InputKind))
        for name in ("mean", "deviation", "sample_range", "observed_range"):
            values = getattr(self, name)
            if values is None:
                continue
            if (
                not isinstance(values, (tuple, list))
                or len(values) > _MOST_NUMBERS
                or not all(map(_is_finite_number, values))
            ):
                raise ConfigError(f"{name} of {self.name!r} takes finite numbers")
            object.__setattr__(self, name, tuple(map(float, values)))
        for name in ("sample_range", "observed_range"):
            ends = getattr(self, name)
            if ends is not None and (len(ends) != 2 or ends[0] > ends[1]):
                raise ConfigError(
                    f"{name} of {self.name!r} should be the least and the greatest number"
                )
        if not _is_finite_number(self.scale) or not self.scale or 0.0 in self.deviation:
            raise ConfigError(
                f"scale and deviation of {self.name!r} divide: neither can be 0 or infinite"
            )
        object.__setattr__(self, "scale", float(self.scale))
        if self.size is not None:
            if (
                not isinstance(self.size, (tuple, list))
                or len(self.size) != 2
                or not all(_is_whole(length) and 0 < length < 1 << 20 for length in self.size)
            ):
                raise ConfigError(f"size of {self.name!r} should be height and width")
            object.__setattr__(self, "size", tuple(self.size))
        if not _is_finite_number(self.fill):
            raise ConfigError(f"fill of {self.name!r} should be a number")
        object.__setattr__(self, "fill", float(self.fill))
        if self.fit != "squeeze" and self.shortest_edge is not None:
            raise ConfigError(
                f"images of {self.name!r} are either letterboxed or cut from a shortest_edge"
            )
        if self.shortest_edge is not None and not (
            _is_whole(self.shortest_edge) and 0 < self.shortest_edge < 1 << 16
        ):
            raise ConfigError(f"shortest_edge of {self.name!r} should be a number of pixels")
        given = self.transform
        if given is not None and not (
            isinstance(given, Mapping)
            and given.keys() == {"class", "arguments"}
            and is_name(given["class"])
            and isinstance(given["arguments"], Mapping)
        ):
            raise ConfigError(f"transform of {self.name!r} should be a class and arguments")

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, in their JSON form."""
        return _to_plain(self)

    @classmethod
    def from_json(cls, data: Any) -> InputProcessing:
        """Make a meaning from the output of :meth:`to_json`; raise :class:`ConfigError` if it is
        malformed.
        """
        return _read(cls, data)

    def format_description(self) -> str:
        """Return a short description of the steps."""
        steps = [] if self.transform is None else [_describe_transform(self.transform)]
        if self.colours == "convert":
            steps.append("grey and colour converted")
        if self.channel_order == "bgr":
            steps.append("blue first")
        if self.resize != "none":
            steps.append("resized" + (f" to {self.size[0]} x {self.size[1]}" if self.size else ""))
            if self.fit != "squeeze":
                place = "top left corner" if self.fit == "letterbox" else "centre"
                steps.append(
                    f"with its aspect ratio kept, in the {place} of pixels of {self.fill:g}"
                )
            if self.shortest_edge is not None:
                steps.append(f"its centre cut out of a shorter side of {self.shortest_edge}")
        if self.quantised == "raw":
            steps.append("pixels stored as they are")
        elif self.quantised == "already":
            steps.append("samples are quantised already")
        else:
            if self.scale != 1:
                steps.append(f"divided by {self.scale:g}")
            if self.mean:
                steps.append(f"minus {' '.join(f'{number:g}' for number in self.mean[:8])}")
            if self.deviation:
                steps.append(
                    f"divided by {' '.join(f'{number:g}' for number in self.deviation[:8])}"
                )
            if self.scale == 1 and not self.mean and not self.deviation and self.transform is None:
                steps.append("numbers as they are")
        return ", ".join(steps)


@dataclass(frozen=True)
class OutputMetadata:
    """What one output of a model means.

    Parameters
    ----------
    name
        The name of the output.
    kind
        The kind of values.  ``"scores"`` are numbers of which a greater one means a more likely
        class.
    class_names
        The names of its classes in order, from class ``class_offset`` on; empty if they are
        unknown.
    class_offset
        The number of classes without a name that come first.

    Examples
    --------
    >>> OutputMetadata("scores", "logits", ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    name: str
    kind: OutputKind
    class_names: tuple[str, ...] = ()
    class_offset: int = 0

    def __post_init__(self) -> None:
        _check(self, get_args(OutputKind))
        names = self.class_names
        if (
            not isinstance(names, (tuple, list))
            or len(names) > _MOST_CLASSES
            or not all(map(is_name, names))
        ):
            raise ConfigError(f"class_names of {self.name!r} should be a list of short texts")
        object.__setattr__(self, "class_names", tuple(names))
        if not _is_whole(self.class_offset) or not 0 <= self.class_offset <= _MOST_CLASSES:
            raise ConfigError(f"class_offset of {self.name!r} should be a number of classes")

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, in their JSON form."""
        return _to_plain(self)

    @classmethod
    def from_json(cls, data: Any) -> OutputMetadata:
        """Make a meaning from the output of :meth:`to_json`; raise :class:`ConfigError` if it is
        malformed.
        """
        return _read(cls, data)


def _describe_transform(description: Mapping[str, Any]) -> str:
    from nnpipe.core.input_transform import transform_from

    try:
        return transform_from(description).format_description()
    except NNPipeError:  # a plugin's, which is not installed here
        return str(description["class"]).rpartition(".")[2]


def _to_plain(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(value):
        held = getattr(value, each.name)
        if held != each.default:
            found[each.name] = list(held) if isinstance(held, tuple) else held
    return found


def _read(cls: Callable[..., T], data: Any) -> T:
    if not isinstance(data, Mapping):
        raise ConfigError("the meaning of a tensor should be an object")
    known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
    # Unknown entries come from a later version, and may change the meaning of the others.
    strange = [str(name)[:40] for name in data if name not in known]
    if strange:
        raise ConfigError(
            f"the meaning of a tensor holds {', '.join(strange[:3])}, which this version does not "
            f"know"
        )
    try:
        return cls(**data)
    except TypeError as error:
        raise ConfigError(f"not the meaning of a tensor: {error}") from None


def _check(value: Any, kinds: tuple[str, ...]) -> None:
    if not is_name(value.name):
        raise ConfigError("a tensor's meaning needs the tensor's name")
    for name, choices in {**_CHOICES, "kind": kinds}.items():
        given = getattr(value, name, None)
        if hasattr(value, name) and (not isinstance(given, str) or given not in choices):
            raise ConfigError(
                f"{name} of {value.name!r} should be one of {', '.join(choices)}, not "
                f"{str(given)[:40]}"
            )


def is_name(value: Any) -> bool:
    """Return whether a value can be the name of a tensor or class: a string that is neither
    empty nor very long.
    """
    return isinstance(value, str) and 0 < len(value) <= _LONGEST


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
