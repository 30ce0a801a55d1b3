"""Layouts: the order of axes in which samples of a data set become a model's input tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import show_shape

Shape = tuple["int | None", ...]
Order = Literal["auto", "nhwc", "nchw"]


@dataclass(frozen=True)
class LayoutFit:
    """One way to bring a sample into a model's shape.

    Parameters
    ----------
    order
        ``"nhwc"`` or ``"nchw"`` for images; ``"hw"`` for images without an
        axis of channels; ``"flat"`` for anything else, whose elements are
        only counted.
    size
        Height and width to resize to; None where nothing is resized.
    channels
        Channels to bring images to; None where they stay as they are.
    """

    order: str
    size: tuple[int, int] | None = None
    channels: int | None = None


def fit(
    name: str,
    have: Shape,
    want: Shape,
    order: Order,
    size: tuple[int, int] | None,
    convert: bool = False,
    resize: bool = False,
) -> LayoutFit:
    """Find how a sample of one shape becomes one of another.

    Parameters
    ----------
    name
        What to call the model in an error.
    have, want
        Shapes of the data set's sample and of the model's, without the axis of samples.
    order
        What the user says of the order of axes.
    size
        What the user says of height and width; those the model takes otherwise.
    convert
        Whether grey images may become coloured ones, and coloured ones grey, where the model takes no others.
    resize
        Whether images of another size may be brought to that of the model.

    Raises
    ------
    ConfigError
        Naming both shapes, if there is no way, or if there are two.
    """
    found = _fit(name, have, want, order, size, convert)
    if found.size is not None and size is None and not resize:
        rows, columns = found.size
        given = " x ".join("?" if length is None else str(length) for length in have[:2])
        raise ConfigError(
            f"{name} takes images of {rows} x {columns}, the data set gives {given}: "
            f"--resize {rows} {columns} brings them there"
        )
    return found


def _fit(name: str, have: Shape, want: Shape, order: Order, size: tuple[int, int] | None, convert: bool) -> LayoutFit:
    if len(have) != 3:
        if size is not None or order != "auto":
            raise ConfigError(
                f"{name}: the data set gives {show_shape(have)}, which are no images to lay out or resize"
            )
        if have == want or _same_count(have, want) or _agree(have, want):
            return LayoutFit("flat")
        raise _misfit(name, have, want)
    found = list(_image_fits(have, want, order, size))
    exact = [option for option, untouched in found if untouched]
    options = exact or [option for option, _ in found]
    if not options:
        other = {1: 3, 3: 1}.get(have[2] or 0)
        if other and any(_image_fits((*have[:2], other), want, order, size)):
            if convert:
                return replace(_fit(name, (*have[:2], other), want, order, size, False), channels=other)
            raise _misfit(name, have, want, "; --colours convert makes grey images coloured and coloured ones grey")
        hint = f" in the order {order}" if order != "auto" else ""
        raise _misfit(name, have, want, hint)
    if {"nhwc", "nchw"} <= {option.order for option in options}:
        # A model whose height and width are free still says how many channels it takes, and where.
        said = [option for option in options if want[2 if option.order == "nhwc" else 0] is not None]
        if len(said) == 1:
            return said[0]
        raise ConfigError(
            f"{name} takes {show_shape(want)}, which may be rows, columns, channels or channels, rows, columns: "
            "give --layout nhwc or --layout nchw"
        )
    if options[0].order == "flat" and order == "auto" and have[2] not in (None, 1):
        raise ConfigError(
            f"{name} takes {show_shape(want)}, in which rows, columns and channels of {show_shape(have)} may follow "
            "channel by channel or pixel by pixel: give --layout nchw or --layout nhwc"
        )
    return options[0]


def _image_fits(
    have: Shape, want: Shape, order: Order, size: tuple[int, int] | None
) -> Iterator[tuple[LayoutFit, bool]]:
    """List the ways for an image ``(height, width, channels)``, and whether height and width stay as they are."""
    height, width, channels = have
    targets: list[tuple[str, int | None, int | None, int | None]] = []
    if len(want) == 3:
        targets += [("nhwc", want[0], want[1], want[2]), ("nchw", want[1], want[2], want[0])]
    elif len(want) == 2 and channels == 1:
        targets += [("hw", want[0], want[1], 1)]
    for name, rows, columns, planes in targets:
        if (order != "auto" and name in ("nhwc", "nchw") and name != order) or planes not in (None, channels):
            continue
        wanted = size or (rows or height, columns or width)
        if size is not None and (rows not in (None, size[0]) or columns not in (None, size[1])):
            continue
        if None in wanted:  # neither side says: whatever comes is taken
            yield LayoutFit(name), True
            continue
        goal = (int(wanted[0] or 0), int(wanted[1] or 0))
        untouched = goal == (height, width)
        yield LayoutFit(name, None if untouched else goal), untouched
    vector = len(want) == 1 or (len(want) == 2 and 1 in want)
    if vector and size is None and (want == (None,) or _same_count(have, want)):
        yield LayoutFit("flat"), True


def _same_count(have: Shape, want: Shape) -> bool:
    return None not in have and None not in want and prod(n or 0 for n in have) == prod(n or 0 for n in want)


def _agree(have: Shape, want: Shape) -> bool:
    return len(have) == len(want) and all(None in pair or pair[0] == pair[1] for pair in zip(have, want, strict=True))


def _misfit(name: str, have: Shape, want: Shape, hint: str = "") -> ConfigError:
    return ConfigError(f"{name} takes samples of {show_shape(want)}, the data set gives {show_shape(have)}{hint}")
