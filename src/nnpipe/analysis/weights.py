"""Match the weights of two models tensor by tensor, for any layouts and names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nnpipe.analysis.channel_errors import Array

Layout = Literal["OIHW", "HWIO", "OHWI"]
Way = Literal["name", "values", "operation", "place"]

_ALIKE = 0.5  # median similarity of channels below which two tensors do not match
_SURE = 0.9  # and above which they match, whatever their names
_NAMED = 0.02  # the bonus of an equal name, among equally similar tensors
_FAR = 1e-4  # the penalty for a step of distance in the order
_ROWS, _COLUMNS = 32, 1024  # of a tensor that are compared to find its counterpart
_APART = 2  # positions between a pair and the next but one
_SHORT = 4  # values in a channel below which its direction is not meaningful


@dataclass(frozen=True)
class Weight:
    """A tensor of weights, as real numbers, with the operation that uses it.

    Parameters
    ----------
    name
        The name of the tensor in the model file.
    values
        The values as real numbers.
    operation, kind
        The operation that uses it, and its kind.
    place
        Its position among the operation's inputs.
    step
        The quantisation step, in a shape that broadcasts with ``values``;
        ``None`` for floats.
    result
        The tensor that the operation computes.
    computed
        Whether the model computes the values from stored ones, so that they may be rounded several
        times.
    """

    name: str
    values: Array
    operation: str
    kind: str
    place: int
    step: Array | None = None
    result: str = ""
    computed: bool = False


@dataclass(frozen=True)
class Normalisation:
    """The parameters of a batch normalisation.

    Parameters
    ----------
    name
        The name of the operation.
    gamma, beta, mean, variance
        The parameters, ``(channels,)`` each.
    epsilon
        The number that the model adds to variances.
    beta_name
        The name of the tensor of ``beta``, if there is one.
    """

    name: str
    gamma: Array
    beta: Array
    mean: Array
    variance: Array
    epsilon: float
    beta_name: str = ""

    @property
    def factor(self) -> Array:
        """The factor of each channel, ``(channels,)``."""
        found: Array = self.gamma / np.sqrt(self.variance + self.epsilon)
        return found


@dataclass(frozen=True)
class Affine:
    """The scale and shift at the end of a layer normalisation, ``(features,)`` each, and the
    operation's name.
    """

    name: str
    scale: Array
    shift: Array


@dataclass(frozen=True)
class Weights:
    """All weights of a model, in the order in which it computes.

    Parameters
    ----------
    tensors
        The tensors, each once.
    layout
        The order of axes of its kernels: outputs, inputs, height and width.
    normalised
        The batch normalisation that follows an operation, by the tensor that the operation
        computes.
    affine
        The scale and shift of the layer normalisation before an operation, by the operation's name.
    """

    tensors: tuple[Weight, ...]
    layout: Layout
    normalised: dict[str, Normalisation] = field(default_factory=dict)
    affine: dict[str, Affine] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightPair:
    """Two corresponding tensors of weights.

    Parameters
    ----------
    source, other
        The two tensors.
    order
        The source's axes in the order of the other's; ``None`` if the tensor is
        only reshaped.
    by
        How the two were matched.
    """

    source: Weight
    other: Weight
    order: tuple[int, ...] | None
    by: Way

    def get_aligned_values(self) -> Array:
        """Return the other's values in the source's order of axes."""
        return self.to_source_axes(self.other.values)

    def to_source_axes(self, values: Array) -> Array:
        """Convert an array with the other's axes to the source's order of axes."""
        whole: Array = np.broadcast_to(values, self.other.values.shape)
        order = None if self.order is None else tuple(map(int, np.argsort(self.order)))
        found: Array = (
            whole.reshape(self.source.values.shape) if order is None else whole.transpose(order)
        )
        return found


def match_weights(source: Weights, other: Weights) -> list[WeightPair]:
    """Return the counterpart of each tensor of the source, in the source's order.

    Kernels and matrices are matched by their values, in any layout, or by name if most of their
    values were changed. A kernel between two matched ones is matched with the kernel at that
    position.  Vectors are matched by the operations that use them, or by name.
    """
    wide = [w for w in source.tensors if w.values.ndim > 1]
    there = [w for w in other.tensors if w.values.ndim > 1]
    found: dict[int, WeightPair] = {}
    taken: set[int] = set()
    scored = sorted(_score_pairs(wide, there, source, other.layout), key=lambda each: -each[0])
    for least, by_name in ((_SURE, False), (-1.0, True), (_ALIKE, False)):
        for _, alike, mine, theirs, order in scored:
            named = _has_same_name(wide[mine], there[theirs])
            if alike < least or (by_name and not named) or mine in found or theirs in taken:
                continue
            found[mine] = WeightPair(
                wide[mine], there[theirs], order, "name" if by_name else "values"
            )
            taken.add(theirs)
    for mine, theirs in _match_between(
        {n: next(i for i, w in enumerate(there) if w is pair.other) for n, pair in found.items()},
        wide,
        there,
    ):
        ways = list(
            iter_layout_orders(
                wide[mine].values.shape, there[theirs].values.shape, source.layout, other.layout
            )
        )
        if ways:
            found[mine] = WeightPair(wide[mine], there[theirs], ways[0], "place")
    pairs = [found[number] for number in sorted(found)]
    return sorted(
        [*pairs, *_match_vectors(source, other, pairs)],
        key=lambda pair: _find_position(source, pair),
    )


def _match_between(
    found: Mapping[int, int], source: Sequence[Weight], other: Sequence[Weight]
) -> Iterator[tuple[int, int]]:
    """Yield kernels that are alone between two pairs in both models; if they differ there, they are
    damaged.

    Matrices are left out, since rows in another order are not damage.
    """
    ends = {-1: -1, len(source): len(other)}
    for mine, weight in enumerate(source):
        before, behind = (({**found, **ends}).get(mine + step) for step in (-1, 1))
        if (
            mine in found
            or before is None
            or behind is None
            or behind - before != _APART
            or weight.values.ndim < 3
        ):
            continue
        theirs = before + 1
        if theirs not in found.values() and sorted(other[theirs].values.shape) == sorted(
            weight.values.shape
        ):
            yield mine, theirs


def iter_layout_orders(
    shape: tuple[int, ...], wanted: tuple[int, ...], layout: Layout, other: Layout
) -> Iterator[tuple[int, ...] | None]:
    """Yield the orders of the source's axes that give the other's shape and keep height before
    width.
    """
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
        mine, theirs = _get_spatial_axes(rank, layout), _get_spatial_axes(rank, other)
        rest = [axis for axis in range(rank) if axis not in mine]
        free = [axis for axis in range(rank) if axis not in theirs]
        for pair in (rest, rest[::-1]):
            placed = dict(zip(theirs, mine, strict=True)) | dict(zip(free, pair, strict=True))
            candidates.append(tuple(placed[axis] for axis in range(rank)))
    for order in dict.fromkeys(candidates):
        if tuple(shape[axis] for axis in order) == wanted:
            yield order


def _get_spatial_axes(rank: int, layout: Layout) -> list[int]:
    start = {"OIHW": 2, "HWIO": 0, "OHWI": 1}[layout]
    return list(range(start, start + rank - 2))


def _score_pairs(
    wide: Sequence[Weight], others: Sequence[Weight], source: Weights, there: Layout
) -> Iterator[tuple[float, float, int, int, tuple[int, ...] | None]]:
    for mine, weight in enumerate(wide):
        signed = list(_iter_signed_kernels(weight.values, source.normalised.get(weight.result)))
        for theirs, candidate in enumerate(others):
            if weight.values.size != candidate.values.size:
                continue
            for order in iter_layout_orders(
                weight.values.shape, candidate.values.shape, source.layout, there
            ):
                turned = WeightPair(weight, candidate, order, "values").get_aligned_values()
                alike = max(
                    compute_channel_similarity(each, turned, axis)
                    for each in signed
                    for axis in range(turned.ndim)
                )
                bonus = _NAMED * _has_same_name(weight, candidate) - _FAR * abs(mine - theirs)
                yield alike + bonus, alike, mine, theirs, order


def _iter_signed_kernels(kernel: Array, norm: Normalisation | None) -> Iterator[Array]:
    """Yield a kernel, and it with the signs that its channels get if the normalisation after it is
    folded into it.

    If half of the channels change their sign, a folded kernel is otherwise like its source along no
    axis.
    """
    yield kernel
    if norm is None or not np.any(norm.gamma < 0):
        return
    for axis, length in enumerate(kernel.shape):
        if length == norm.gamma.size:
            shape = [1] * kernel.ndim
            shape[axis] = length
            yield kernel * np.sign(norm.gamma).reshape(shape)


def compute_channel_similarity(one: Array, two: Array, axis: int) -> float:
    """Return the median over channels of the cosine similarity of two tensors, from a part of
    their values.
    """
    count = one.shape[axis]
    if one.size // count < _SHORT:
        return _compute_cosine_similarity(one.reshape(1, -1), two.reshape(1, -1))
    rows = np.linspace(0, count - 1, min(count, _ROWS)).astype(np.int64)
    a, b = (
        np.take(each, rows, axis).swapaxes(0, axis).reshape(len(rows), -1)[:, :_COLUMNS]
        for each in (one, two)
    )
    return _compute_cosine_similarity(a, b)


def _compute_cosine_similarity(one: Array, two: Array) -> float:
    both = np.sqrt(np.square(one).sum(1) * np.square(two).sum(1))
    heard = both > 0
    return float(np.median((one * two).sum(1)[heard] / both[heard])) if heard.any() else 0.0


def _has_same_name(one: Weight, two: Weight) -> bool:
    mine, theirs = one.name, two.name.removesuffix("_quantized")
    # PyTorch wraps a model in another module when it exports it again.
    return mine == theirs or mine.endswith(f".{theirs}") or theirs.endswith(f".{mine}")


def _match_vectors(
    source: Weights, other: Weights, kernels: Sequence[WeightPair]
) -> Iterator[WeightPair]:
    """Pair vectors: those of operations with paired kernels, those of their normalisations, and
    those of equal name.
    """
    beside = {pair.source.operation: pair.other.operation for pair in kernels}
    for pair in kernels:
        mine, theirs = (
            source.normalised.get(pair.source.result),
            other.normalised.get(pair.other.result),
        )
        if mine is not None and theirs is not None:
            beside[mine.name] = theirs.name
    taken = {(w.operation, w.place): w for w in other.tensors if w.values.ndim == 1}
    by_name = {weight.name: weight for weight in other.tensors if weight.values.ndim == 1}
    for weight in source.tensors:
        if weight.values.ndim != 1:
            continue
        there = taken.get((beside.get(weight.operation, ""), weight.place)) or by_name.get(
            weight.name
        )
        if there is not None and there.values.shape == weight.values.shape:
            yield WeightPair(
                weight, there, (0,), "name" if there.name == weight.name else "operation"
            )


def _find_position(source: Weights, pair: WeightPair) -> int:
    return next(number for number, weight in enumerate(source.tensors) if weight is pair.source)
