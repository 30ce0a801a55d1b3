"""Layouts: how to order and resize the axes of a data set's samples for a model's input tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import show_shape

Shape = tuple["int | None", ...]
Order = Literal["auto", "nhwc", "nchw"]

_CHANNELS = (1, 3, 4)  # of pictures


@dataclass(frozen=True)
class LayoutFit:
    """One way to convert a sample to a model's shape.

    Parameters
    ----------
    order
        ``"nhwc"`` or ``"nchw"`` for images; ``"hw"`` for images without an
        axis of channels; ``"flat"`` for other samples, for which only the
        number of elements has to agree.
    size
        Height and width to resize to, in pixels; None if nothing is resized.
    channels
        The number of channels to convert images to; None if they are not converted.
    channels_first
        Whether the samples are images ``(channels, height, width)``.
    """

    order: str
    size: tuple[int, int] | None = None
    channels: int | None = None
    channels_first: bool = False


def has_channels_first(sample: Sequence[int | None]) -> bool:
    """Return whether three axes are channels, rows and columns: so many channels as pictures have,
    and no such columns.

    Examples
    --------
    >>> has_channels_first((3, 32, 32)), has_channels_first((32, 32, 3)), has_channels_first((3, 32, 1))
    (True, False, False)
    """
    return len(sample) == 3 and sample[0] in _CHANNELS and sample[2] not in _CHANNELS


def fit(
    name: str,
    have: Shape,
    want: Shape,
    order: Order,
    size: tuple[int, int] | None,
    convert: bool = False,
    resize: bool = False,
) -> LayoutFit:
    """Find how to convert a sample from one shape to another.

    Parameters
    ----------
    name
        The model's name in error messages.
    have, want
        Shapes of a data set's sample and of the model's input, without the axis of samples.
    order
        The order of axes, if the user gives one.
    size
        Height and width in pixels, if the user gives them; otherwise the model's.
    convert
        Whether grey images may be converted to colour, and colour images to grey, if the model
        needs it.
    resize
        Whether images may be resized to the model's size.

    Raises
    ------
    ConfigError
        If there is no way, or more than one; the message names both shapes.
    """
    found = _fit_either(name, have, want, order, size, convert)
    have = (*have[1:], have[0]) if found.channels_first else have
    if found.size is not None and None not in (*have, *want) and _is_permutation(have, want):
        raise _build_misfit_error(name, have, want)
    if found.size is not None and size is None and not resize:
        rows, columns = found.size
        if None in have[:2]:
            raise ConfigError(
                f"{name} takes images of {rows} x {columns}, the data set gives images of any "
                f"size: "
                "--fit squeeze or --fit letterbox brings them there"
            )
        given = " x ".join(map(str, have[:2]))
        raise ConfigError(
            f"{name} takes images of {rows} x {columns}, the data set gives {given}: "
            f"--resize {rows} {columns} brings them there"
        )
    return found


def _fit_either(
    name: str, have: Shape, want: Shape, order: Order, size: tuple[int, int] | None, convert: bool
) -> LayoutFit:
    """Find how to convert a sample, which may have its channels first."""
    if not has_channels_first(have):
        return _fit(name, have, want, order, size, convert)
    plain, turned = None, None
    with suppress(ConfigError):
        plain = _fit(name, have, want, order, size, convert)
    try:
        turned = _fit(name, (*have[1:], have[0]), want, order, size, convert)
    except ConfigError:
        if plain is None or plain.size is not None:
            raise
    # Many channels behind few rows are possible, but then nothing is resized.
    if turned is None or (turned.size is not None and plain is not None and plain.size is None):
        assert plain is not None
        return plain
    return replace(turned, channels_first=True)


def _fit(
    name: str, have: Shape, want: Shape, order: Order, size: tuple[int, int] | None, convert: bool
) -> LayoutFit:
    if len(have) != 3:
        if size is not None or order != "auto":
            raise ConfigError(
                f"{name}: the data set gives {show_shape(have)}, which are no images to lay out or "
                f"resize"
            )
        if (
            have == want
            or _is_compatible(have, want)
            or (_has_same_count(have, want) and _can_reshape(have, want))
        ):
            return LayoutFit("flat")
        raise _build_misfit_error(name, have, want)
    found = list(_iter_image_fits(have, want, order, size))
    exact = [option for option, untouched in found if untouched]
    options = exact or [option for option, _ in found]
    if not options:
        other = {1: 3, 3: 1}.get(have[2] or 0)
        if other and any(_iter_image_fits((*have[:2], other), want, order, size)):
            if convert:
                return replace(
                    _fit(name, (*have[:2], other), want, order, size, False), channels=other
                )
            raise _build_misfit_error(
                name,
                have,
                want,
                "; --colours convert makes grey images coloured and coloured ones grey",
            )
        hint = f" in the order {order}" if order != "auto" else ""
        raise _build_misfit_error(name, have, want, hint)
    if {"nhwc", "nchw"} <= {option.order for option in options}:
        # A model with free height and width still has a fixed number of channels at a known axis.
        said = [
            option for option in options if want[2 if option.order == "nhwc" else 0] is not None
        ]
        if len(said) == 1:
            return said[0]
        raise ConfigError(
            f"{name} takes {show_shape(want)}, which may be rows, columns, channels or channels, "
            f"rows, columns: "
            "give --layout nhwc or --layout nchw"
        )
    if options[0].order == "flat" and order == "auto" and have[2] not in (None, 1):
        raise ConfigError(
            f"{name} takes {show_shape(want)}, in which rows, columns and channels of "
            f"{show_shape(have)} may follow "
            "channel by channel or pixel by pixel: give --layout nchw or --layout nhwc"
        )
    return options[0]


def _iter_image_fits(
    have: Shape, want: Shape, order: Order, size: tuple[int, int] | None
) -> Iterator[tuple[LayoutFit, bool]]:
    """Yield the ways to convert an image ``(height, width, channels)``, each with whether it
    needs no resizing.
    """
    height, width, channels = have
    targets: list[tuple[str, int | None, int | None, int | None]] = []
    if len(want) == 3:
        targets += [("nhwc", want[0], want[1], want[2]), ("nchw", want[1], want[2], want[0])]
    elif len(want) == 2 and channels == 1:
        targets += [("hw", want[0], want[1], 1)]
    for name, rows, columns, planes in targets:
        if (order != "auto" and name in ("nhwc", "nchw") and name != order) or planes not in (
            None,
            channels,
        ):
            continue
        wanted = size or (rows or height, columns or width)
        if size is not None and (rows not in (None, size[0]) or columns not in (None, size[1])):
            continue
        if None in wanted:  # neither side fixes the size: any size is accepted
            yield LayoutFit(name), True
            continue
        goal = (int(wanted[0] or 0), int(wanted[1] or 0))
        untouched = goal == (height, width)
        yield LayoutFit(name, None if untouched else goal), untouched
    vector = len(want) == 1 or (len(want) == 2 and 1 in want)
    if vector and size is None and (want == (None,) or _has_same_count(have, want)):
        yield LayoutFit("flat"), True


def _has_same_count(have: Shape, want: Shape) -> bool:
    return (
        None not in have
        and None not in want
        and prod(n or 0 for n in have) == prod(n or 0 for n in want)
    )


def _can_reshape(have: Shape, want: Shape) -> bool:
    """Return whether samples may be reshaped: axes of one element come or go, or all are joined
    or divided.
    """
    one, other = ([length for length in shape if length != 1] for shape in (have, want))
    return one == other or len(one) < 2 or len(other) < 2


def _is_permutation(have: Shape, want: Shape) -> bool:
    return have != want and Counter(have) == Counter(want)


def _is_compatible(have: Shape, want: Shape) -> bool:
    return len(have) == len(want) and all(
        None in pair or pair[0] == pair[1] for pair in zip(have, want, strict=True)
    )


def _build_misfit_error(name: str, have: Shape, want: Shape, hint: str = "") -> ConfigError:
    if not hint and _is_permutation(have, want):
        hint = ": the same axes in another order; transpose the arrays"
    return ConfigError(
        f"{name} takes samples of {show_shape(want)}, the data set gives {show_shape(have)}{hint}"
    )
