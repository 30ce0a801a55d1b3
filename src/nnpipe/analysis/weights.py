"""Match the weights of two models tensor by tensor, whatever layouts and names the two have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nnpipe.analysis.channel_noise import Array

Layout = Literal["OIHW", "HWIO", "OHWI"]
Way = Literal["name", "values", "operation", "place"]

_ALIKE = 0.5  # median likeness of channels below which two tensors are two
_SURE = 0.9  # and above which they are one, whatever their names say
_NAMED = 0.02  # what an equal name counts for, among tensors that are equally alike
_FAR = 1e-4  # what a step away in the order counts for
_ROWS, _COLUMNS = 32, 1024  # of a tensor that are looked at to find its counterpart
_APART = 2  # places between a pair and the next but one
_SHORT = 4  # values in a channel below which its direction says nothing


@dataclass(frozen=True)
class Weight:
    """A tensor of weights, in real numbers, where an operation takes it.

    Parameters
    ----------
    name
        Of the tensor that the model's file holds.
    values
        As numbers.
    operation, kind
        What takes it.
    place
        Its position among the operation's inputs.
    step
        Distance of neighbouring numbers that it can hold, of a shape that goes
        with ``values``; ``None`` for floats.
    result
        The tensor that the operation computes.
    """

    name: str
    values: Array
    operation: str
    kind: str
    place: int
    step: Array | None = None
    result: str = ""


@dataclass(frozen=True)
class Normalisation:
    """What a batch normalisation multiplies each channel by, and adds to it.

    Parameters
    ----------
    name
        Of the operation.
    gamma, beta, mean, variance
        ``(channels,)``.
    beta_name
        Of the tensor that holds ``beta``, where there is one.
    """

    name: str
    gamma: Array
    beta: Array
    mean: Array
    variance: Array
    beta_name: str = ""

    def factor(self, epsilon: float) -> Array:
        """Return what each channel is multiplied by."""
        found: Array = self.gamma / np.sqrt(self.variance + epsilon)
        return found


@dataclass(frozen=True)
class Weights:
    """All weights of a model, in the order in which it computes.

    Parameters
    ----------
    tensors
        Each once.
    layout
        Order of axes of its kernels: outputs, inputs, height and width.
    normalised
        The normalisation that follows an operation, by what the operation computes.
    """

    tensors: tuple[Weight, ...]
    layout: Layout
    normalised: dict[str, Normalisation] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightPair:
    """Two tensors of weights that go together.

    Parameters
    ----------
    source, other
        The two.
    order
        The source's axes in the order of the other's; ``None`` where elements
        go over as they lie.
    by
        What tells that they go together.
    """

    source: Weight
    other: Weight
    order: tuple[int, ...] | None
    by: Way

    def turned(self) -> Array:
        """Return the other's values in the source's order of axes."""
        return self.back(self.other.values)

    def back(self, values: Array) -> Array:
        """Bring an array that goes with the other's values into the source's order of axes."""
        whole: Array = np.broadcast_to(values, self.other.values.shape)
        order = None if self.order is None else tuple(map(int, np.argsort(self.order)))
        found: Array = whole.reshape(self.source.values.shape) if order is None else whole.transpose(order)
        return found


def pair_weights(source: Weights, other: Weights) -> list[WeightPair]:
    """Find the counterpart of each tensor of the source, in its order.

    Kernels and matrices find theirs by what they hold, in any layout; where that says too little, because most of it
    was changed, by name; a kernel between two that have theirs goes with what stands there.  Vectors go by the
    operations that take them, or by name.
    """
    wide = [w for w in source.tensors if w.values.ndim > 1]
    there = [w for w in other.tensors if w.values.ndim > 1]
    found: dict[int, WeightPair] = {}
    taken: set[int] = set()
    scored = sorted(_scores(wide, there, source.layout, other.layout), key=lambda each: -each[0])
    for least, by_name in ((_SURE, False), (-1.0, True), (_ALIKE, False)):
        for _, alike, mine, theirs, order in scored:
            named = _same_name(wide[mine], there[theirs])
            if alike < least or (by_name and not named) or mine in found or theirs in taken:
                continue
            found[mine] = WeightPair(wide[mine], there[theirs], order, "name" if by_name else "values")
            taken.add(theirs)
    for mine, theirs in _between(
        {n: next(i for i, w in enumerate(there) if w is pair.other) for n, pair in found.items()}, wide, there
    ):
        ways = list(orders(wide[mine].values.shape, there[theirs].values.shape, source.layout, other.layout))
        if ways:
            found[mine] = WeightPair(wide[mine], there[theirs], ways[0], "place")
    pairs = [found[number] for number in sorted(found)]
    return sorted([*pairs, *_vectors(source, other, pairs)], key=lambda pair: _position(source, pair))


def _between(found: Mapping[int, int], source: Sequence[Weight], other: Sequence[Weight]) -> Iterator[tuple[int, int]]:
    """Return kernels that stand alone between two pairs, on both sides: what is unlike its source there was damaged.

    Matrices are left out: rows in another order are no damage to them.
    """
    ends = {-1: -1, len(source): len(other)}
    for mine, weight in enumerate(source):
        before, behind = (({**found, **ends}).get(mine + step) for step in (-1, 1))
        if mine in found or before is None or behind is None or behind - before != _APART or weight.values.ndim < 3:
            continue
        theirs = before + 1
        if theirs not in found.values() and sorted(other[theirs].values.shape) == sorted(weight.values.shape):
            yield mine, theirs


def orders(
    shape: tuple[int, ...], wanted: tuple[int, ...], layout: Layout, other: Layout
) -> Iterator[tuple[int, ...] | None]:
    """Return the orders of the source's axes that give the other's shape and keep height before width."""
    rank = len(shape)
    candidates: list[tuple[int, ...]] = [tuple(range(rank))]
    if rank != len(wanted):
        one, two = ([n for n in each if n != 1] for each in (shape, wanted))
        if one == two:
            yield None
        return
    if rank == 2:
        candidates.append((1, 0))
    elif 3 <= rank <= 5:
        mine, theirs = _spatial(rank, layout), _spatial(rank, other)
        rest = [axis for axis in range(rank) if axis not in mine]
        free = [axis for axis in range(rank) if axis not in theirs]
        for pair in (rest, rest[::-1]):
            placed = dict(zip(theirs, mine, strict=True)) | dict(zip(free, pair, strict=True))
            candidates.append(tuple(placed[axis] for axis in range(rank)))
    for order in dict.fromkeys(candidates):
        if tuple(shape[axis] for axis in order) == wanted:
            yield order


def _spatial(rank: int, layout: Layout) -> list[int]:
    start = {"OIHW": 2, "HWIO": 0, "OHWI": 1}[layout]
    return list(range(start, start + rank - 2))


def _scores(
    source: Sequence[Weight], other: Sequence[Weight], layout: Layout, there: Layout
) -> Iterator[tuple[float, float, int, int, tuple[int, ...] | None]]:
    for mine, weight in enumerate(source):
        for theirs, candidate in enumerate(other):
            if weight.values.size != candidate.values.size:
                continue
            for order in orders(weight.values.shape, candidate.values.shape, layout, there):
                turned = WeightPair(weight, candidate, order, "values").turned()
                alike = max(likeness(weight.values, turned, axis) for axis in range(weight.values.ndim))
                bonus = _NAMED * _same_name(weight, candidate) - _FAR * abs(mine - theirs)
                yield alike + bonus, alike, mine, theirs, order


def likeness(one: Array, two: Array, axis: int) -> float:
    """Return the median over channels of the cosine between what two tensors hold there, of some of both."""
    count = one.shape[axis]
    if one.size // count < _SHORT:
        return _cosine(one.reshape(1, -1), two.reshape(1, -1))
    rows = np.linspace(0, count - 1, min(count, _ROWS)).astype(np.int64)
    a, b = (np.take(each, rows, axis).swapaxes(0, axis).reshape(len(rows), -1)[:, :_COLUMNS] for each in (one, two))
    return _cosine(a, b)


def _cosine(one: Array, two: Array) -> float:
    both = np.sqrt(np.square(one).sum(1) * np.square(two).sum(1))
    heard = both > 0
    return float(np.median((one * two).sum(1)[heard] / both[heard])) if heard.any() else 0.0


def _same_name(one: Weight, two: Weight) -> bool:
    mine, theirs = one.name, two.name.removesuffix("_quantized")
    # PyTorch puts what it exports anew into one module more.
    return mine == theirs or mine.endswith(f".{theirs}") or theirs.endswith(f".{mine}")


def _vectors(source: Weights, other: Weights, kernels: Sequence[WeightPair]) -> Iterator[WeightPair]:
    """Pair vectors: those of operations whose kernels go together, those of what normalises these, and of one name."""
    beside = {pair.source.operation: pair.other.operation for pair in kernels}
    for pair in kernels:
        mine, theirs = source.normalised.get(pair.source.result), other.normalised.get(pair.other.result)
        if mine is not None and theirs is not None:
            beside[mine.name] = theirs.name
    taken = {(w.operation, w.place): w for w in other.tensors if w.values.ndim == 1}
    by_name = {weight.name: weight for weight in other.tensors if weight.values.ndim == 1}
    for weight in source.tensors:
        if weight.values.ndim != 1:
            continue
        there = taken.get((beside.get(weight.operation, ""), weight.place)) or by_name.get(weight.name)
        if there is not None and there.values.shape == weight.values.shape:
            yield WeightPair(weight, there, (0,), "name" if there.name == weight.name else "operation")


def _position(source: Weights, pair: WeightPair) -> int:
    return next(number for number, weight in enumerate(source.tensors) if weight is pair.source)
