"""Find a model's weights in the bytes of a compiled file.

Compilers change the layout of weights, fold normalisations into them, which scales each channel, and
round them.  The ratios of the weights within a channel remain.  So each channel is searched for in all
numbers of the file, in any order of axes and up to a factor.  Channels are stored side by side, so if
most channels of a layer are found, the positions of the others are known, and their present content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from nnpipe.analysis.altered_weights import nearest, unexplained
from nnpipe.analysis.byte_search import ByteSearch, Numbers, Reals, View
from nnpipe.analysis.channel_noise import FAINT
from nnpipe.analysis.suspect_operations import LEAST_OF_CHANNEL
from nnpipe.core.claims import Claim, numbers_of

_LARGEST = (63, 64, 127, 128)
_MOSTLY = 0.8  # of the channels
_TELLING = 4  # the least number of weights of a channel for a search; fewer are found everywhere by chance
_TRIED_FIRST = 8  # channels that decide whether a layout is possible
_AS_WELL, _EQUAL = 4.0, 1e-10  # times the least rest, and the share of the power, within which channels fit alike
_DEAD = 1e-4  # share of the channels' mean power below which a channel has no effect
_VIEWS: dict[Claim, tuple[View, ...]] = {
    "float": tuple(("float32", phase) for phase in range(4)),
    "float16": tuple((kind, phase) for phase in range(4) for kind in ("float16", "float32")),
    "int8": (("int8", 0), *(("float32", phase) for phase in range(4))),
}
_VIEWS |= {"bfloat16": _VIEWS["float"], "int8-weights": _VIEWS["int8"], "int4-weights": _VIEWS["int8"]}


@dataclass(frozen=True)
class Kernel:
    """The weights of one operation, with their name; each of ``axes`` may be the axis of output channels."""

    operation: str
    weights: Numbers
    axes: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True)
class KernelMatch:
    """The channels of a kernel that a file contains.

    Parameters
    ----------
    channels
        The number of channels with enough weights for a search.
    found
        The number of channels that are in the file.
    placed
        The number of channels at the position that follows from their neighbours.
    moved
        For each channel at the position of another one, the number of that one.
    silent
        The channels at whose position there are only zeros.
    other
        The channels at whose position there are other numbers.
    order, axis
        The order of the other axes, and the axis of channels.
    scaled
        Whether the integers of each channel have their own scale, so that no channel is rounded to zeros only.
    there
        The numbers at the places of the channels in ``other``, up to a factor, in the order of axes of ``order``.
    """

    channels: int
    found: tuple[int, ...] = ()
    placed: tuple[int, ...] = ()
    moved: Mapping[int, int] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    other: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    axis: int = 0
    scaled: bool = False
    there: Mapping[int, Reals] = field(default_factory=dict)

    @property
    def wrong(self) -> tuple[int, ...]:
        """The channels at whose position there are certainly wrong numbers."""
        return tuple(sorted({*self.moved, *self.silent, *self.other}))

    def adopted(self, weights: Numbers) -> Reals:
        """Return a kernel with the numbers of the file in the channels of ``other``, scaled to the kernel's own."""
        turned = np.moveaxis(weights, self.axis, 0).astype(np.float64).transpose(0, *(1 + n for n in self.order))
        rows = turned.reshape(len(turned), -1).copy()
        for channel, there in self.there.items():
            sign = -1.0 if np.dot(there, rows[channel]) < 0 else 1.0
            rows[channel] = there * sign * np.sqrt(np.sum(np.square(rows[channel])) / np.sum(np.square(there)))
        back = np.argsort([0, *(1 + n for n in self.order)])
        found: Reals = np.moveaxis(rows.reshape(turned.shape).transpose(back), 0, self.axis)
        return found

    @property
    def missing(self) -> float:
        """The share of the channels that are not at their position."""
        return 1 - (len(self.placed) if self.placed else len(self.found)) / max(self.channels, 1)


@dataclass(frozen=True)
class _Layout:
    """A possible layout of a kernel: the axis of channels, the order of the others, and whether channels come last."""

    axis: int
    order: tuple[int, ...]
    last: bool


class Constants:
    """Searches the bytes of a file for kernels; must be used by one thread only."""

    def __init__(self, content: bytes, claims: Iterable[Claim] = ("float",)) -> None:
        self._bytes = ByteSearch(content)
        numbers = numbers_of(claims)
        self._known, self._least = _VIEWS[numbers], LEAST_OF_CHANNEL[numbers]
        self._liked: list[View] = []  # views in which something was found
        self._lying: list[tuple[tuple[int, ...], bool]] = []  # and its layouts there

    def held(self, kernel: Kernel) -> KernelMatch:
        """Search for a kernel's channels."""
        best = KernelMatch(0)
        known = _VIEWS["int8"] if np.asarray(kernel.weights).dtype.kind in "iu" else self._known
        for view in (*(view for view in self._liked if view in known), *(v for v in known if v not in self._liked)):
            for layout in _layouts(kernel):
                found = self._under(kernel, layout, view)
                if found.channels and (len(found.placed), len(found.found)) >= (len(best.placed), len(best.found)):
                    best = found
                if 2 * len(best.placed) > best.channels > 0:
                    self._liked = [view, *(known for known in self._liked if known != view)]
                    if (layout.order, layout.last) not in self._lying:
                        self._lying.append((layout.order, layout.last))
                    return best
        return best

    def altered(self, kernel: Kernel) -> KernelMatch | None:
        """Search for a kernel with all channels altered, at positions and in layouts like those of others."""
        for view in self._liked:
            for layout in _layouts(kernel):
                if (layout.order, layout.last) not in self._lying:
                    continue
                rows = _rows(kernel, layout)
                there = nearest(self._bytes.view(view), rows, layout.last)
                if there is None:
                    continue
                telling = _telling(rows)
                inner = kernel.weights.shape[: layout.axis] + kernel.weights.shape[layout.axis + 1 :]
                levels = unexplained(rows, there, tuple(inner[place] for place in layout.order))
                other = tuple(sorted(n for n in telling if levels[n] < self._least))
                placed = tuple(sorted({*telling} - {*other}))
                return KernelMatch(
                    len(telling), placed, placed, other=other, order=layout.order, axis=layout.axis,
                    there={n: there[n] for n in other},
                )  # fmt: skip
        return None

    def _under(self, kernel: Kernel, layout: _Layout, view: View) -> KernelMatch:
        rows = _rows(kernel, layout)
        count = len(rows)
        telling = _telling(rows)
        stride, step = (count, 1) if layout.last else (1, rows.shape[1])
        places: dict[int, set[int]] = {}
        for tried, number in enumerate(telling):
            places[number] = set(self._bytes.places(rows[number], stride, view))
            if tried == _TRIED_FIRST and not any(places.values()):
                break
        found = tuple(sorted(number for number, at in places.items() if at))
        bases = Counter(base for n, at in places.items() for base in {place - n * step for place in at})
        base, agreeing = bases.most_common(1)[0] if bases else (0, 0)
        if agreeing < 2 or 2 * agreeing <= len(telling):
            return KernelMatch(len(telling), found, order=layout.order, axis=layout.axis)
        reach = (rows.shape[1] - 1) * stride + 1
        whole = self._bytes.view(view)
        there = {n: _part(whole, base + n * step, reach, stride, rows.shape[1]) for n in telling}
        placed = [n for n in telling if base + n * step in places[n]]
        usual = float(np.mean([np.mean(np.square(there[n])) for n in placed]))
        moved: dict[int, int] = {}
        silent: list[int] = []
        other: list[int] = []
        for n in sorted(set(telling) - set(placed)):
            own = [(place - base) // step for place in places[n] if (place - base) % step == 0]
            own = [place for place in own if 0 <= place < count]
            if own and not _fits_best(rows, n, there[n]):
                moved[n] = own[0]
            elif self._rounded(rows[n].astype(np.float64), there[n], usual):
                placed.append(n)
            else:
                (other if np.any(there[n]) else silent).append(n)
        # If each channel has its own scale, its largest weight becomes the largest integer; this may not hold for a
        # channel without effect.
        full = [np.abs(there[n]).max() in _LARGEST for n in placed]
        scaled = view[0] == "int8" and float(np.mean(full)) >= _MOSTLY
        return KernelMatch(
            len(telling), found, tuple(sorted(placed)), moved, tuple(silent), tuple(other), layout.order, layout.axis,
            scaled, {n: there[n] for n in other},
        )  # fmt: skip

    def _rounded(self, row: Reals, there: Reals, usual: float) -> bool:
        """Return whether the numbers at a channel's position are a multiple of it, at the claimed precision."""
        own = float(np.dot(row, row))
        factor = float(np.dot(row, there)) / own
        noise = float(np.mean(np.square(there - factor * row)))
        heard = max(factor * factor * own / len(row), FAINT * usual)
        return factor != 0 and noise <= heard * 10 ** (-self._least / 10)


def _rows(kernel: Kernel, layout: _Layout) -> Numbers:
    """Return the weights of each channel in the order of a layout."""
    rows = np.moveaxis(np.asarray(kernel.weights), layout.axis, 0)
    turned: Numbers = rows.transpose(0, *(1 + place for place in layout.order)).reshape(len(rows), -1)
    return turned


def _fits_best(rows: Numbers, channel: int, there: Reals) -> bool:
    """Return whether numbers are a multiple of a channel as nearly as of any other, for channels that look alike."""
    own = rows.astype(np.float64)
    along = np.square(own @ there) / np.maximum(np.sum(np.square(own), axis=1), 1e-300)
    left = np.maximum(float(np.dot(there, there)) - along, 0.0)
    return bool(np.any(there) and left[channel] <= _AS_WELL * left.min() + _EQUAL * float(np.dot(there, there)))


def _telling(rows: Numbers) -> list[int]:
    """Return the channels with recognisable weights, in an order that begins with a spread over all of them."""
    powers = np.mean(np.square(rows.astype(np.float64)), axis=1)
    fit = [
        n
        for n in range(len(rows))
        if np.count_nonzero(rows[n]) >= _TELLING and rows[n].min() < rows[n].max() and powers[n] > _DEAD * powers.mean()
    ]
    return [fit[place] for place in np.random.default_rng(0).permutation(len(fit))]


def _part(values: Numbers, start: int, reach: int, stride: int, length: int) -> Reals:
    found = np.zeros(length)
    if start >= 0:
        there = values[start : start + reach : stride]
        found[: len(there)] = there
    return found


def _layouts(kernel: Kernel) -> Iterator[_Layout]:
    """Yield the possible layouts of a kernel, the usual ones first."""
    rest = kernel.weights.ndim - 1
    usual: list[tuple[int, ...]] = [(0, 1, 2), (1, 2, 0)] if rest == 3 else []
    orders = [*usual, *(order for order in permutations(range(rest)) if order not in usual)]
    yield from (_Layout(axis, order, last) for order in orders for axis in kernel.axes for last in (False, True))


def held_in(content: bytes, kernels: Sequence[Kernel], claims: Iterable[Claim] = ("float",)) -> list[KernelMatch]:
    """Return for each kernel the channels that a file's content contains, at the claimed precision."""
    constants = Constants(content, claims)
    found = [constants.held(kernel) for kernel in kernels]
    # The layouts of this file are known only after all kernels have been searched for.
    return [
        held if held.found else (constants.altered(kernel) or held) for kernel, held in zip(kernels, found, strict=True)
    ]
