"""Compute the expected values of a kernel into which the following normalisation was folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnpipe.analysis.channel_noise import Array, step_of
from nnpipe.analysis.weights import Normalisation, Weight, WeightPair, Weights

_LOUD = 0.3  # of a channel's greatest number: rounding of larger numbers does not hide a factor
_SCALED = 0.02  # relative median difference of a channel above which it may be a multiple
_EXACT = 1e-5  # mean difference of factors that were not rounded
_TINY = 1e-300
_SOME = 0.1  # of the channels, if exact, tell what was done; the others may have another epsilon
_PART = 0.5  # the share of the difference that a factor must explain


@dataclass(frozen=True)
class Expected:
    """The expected values of a tensor of the other model, in the source's order of axes.

    Parameters
    ----------
    numbers, found, step
        The expected values, the found values, and their quantisation step.
    norm, axis
        The normalisation that was folded into it, and the axis of channels.
    factors
        The factor of each channel, if channels are multiples of the expected ones.
    shift
        The addition to the bias by a layer normalisation before the operation, if that was folded into the kernel.
    before
        The name of that normalisation.
    """

    numbers: Array
    found: Array
    step: Array | None
    norm: Normalisation | None = None
    axis: int = 0
    factors: Array | None = None
    shift: Array | None = None
    before: str = ""

    def unfolded(self) -> tuple[Array, Array]:
        """Return the expected and the found values before the normalisation was folded in."""
        if self.norm is None:
            return self.numbers, self.found
        factor = along(self.norm.factor, self.numbers.ndim, self.axis)
        known = np.where(factor != 0, factor, 1.0)
        # The last bits of a float are lost; numbers that were equal before must become equal again.
        return self.numbers / known, np.round(self.found / known / self._grain) * self._grain

    @property
    def _grain(self) -> float:
        return float(2.0 ** np.floor(np.log2(max(float(np.abs(self.found).max(initial=0.0)), 1e-30) * 1e-5)))


def expected_of(pair: WeightPair, source: Weights, other: Weights) -> Expected:
    """Return the expected values of a kernel: unchanged, or with the following normalisation folded in.

    Parameters
    ----------
    pair
        The kernel.
    source, other
        The weights of both models.
    """
    plain, *folded = _candidates(pair, source, other)
    # Both explain a kernel of zeros, but only a normalisation with scales of 0 makes one: the first of equals is taken.
    nearest = min((*folded, plain), key=lambda made: (_difference(made, _SOME) > _EXACT, _difference(made)))
    made, left = _multiplied(nearest)
    for after in _after_affine(pair, source) if made.norm is None and left > _EXACT else ():
        candidate, rest = _multiplied(after)
        if rest < left:
            made, left = candidate, rest
    return made


def _multiplied(made: Expected) -> tuple[Expected, float]:
    """Return expected values with the factors of channels, if these explain most of a difference, and what is left."""
    off = _difference(made)
    if off <= _SCALED:
        return made, off
    ratio = _ratios(made.numbers, made.found, made.axis)
    left = _difference(replace(made, numbers=made.numbers * along(ratio, made.numbers.ndim, made.axis)))
    return (replace(made, factors=ratio), left) if left < _PART * off else (made, off)


def _after_affine(pair: WeightPair, source: Weights) -> Iterator[Expected]:
    """Yield the kernel with the scale of the layer normalisation before it folded in, and the shift in its bias."""
    raw, affine = pair.source.values, source.affine.get(pair.source.operation)
    if affine is None or raw.ndim != 2:
        return
    step = None if pair.other.step is None else pair.back(pair.other.step)
    for axis, length in enumerate(raw.shape):
        if length == affine.scale.size:
            numbers, added = raw * along(affine.scale, 2, axis), np.tensordot(raw, affine.shift, (axis, 0))
            yield Expected(numbers, pair.turned(), step, axis=1 - axis, shift=added, before=affine.name)


def expected_vector(expected: Expected, bias: Array | None) -> tuple[Array, float]:
    """Return the bias that results from a folded normalisation, and the greatest number in its computation."""
    norm = expected.norm
    assert norm is not None
    moved = norm.factor * ((0.0 if bias is None else bias) - norm.mean)
    found: Array = norm.beta + moved
    return found, float(np.max(np.abs(moved), initial=0.0) + np.max(np.abs(norm.beta), initial=0.0))


def _candidates(pair: WeightPair, source: Weights, other: Weights) -> Iterator[Expected]:
    raw, found = pair.source.values, pair.turned()
    stated, seen_step = pair.other.step, step_of(pair.other.values)
    step = np.array(seen_step) if stated is None and seen_step else None if stated is None else pair.back(stated)
    yield Expected(raw, found, step)
    for norm, axis in _foldings(pair, source, other):
        yield Expected(raw * along(norm.factor, raw.ndim, axis), found, step, norm, axis)


def vector_beside(kernel: Weight, weights: Weights) -> Weight | None:
    """Return the bias vector of the operation of a kernel, if there is one."""
    return next((w for w in weights.tensors if w.operation == kernel.operation and w.values.ndim == 1), None)


def _foldings(pair: WeightPair, source: Weights, other: Weights) -> Iterator[tuple[Normalisation, int]]:
    """Yield the axes along which the next normalisation may be folded into a kernel."""
    norm = source.normalised.get(pair.source.result)
    if norm is None or other.normalised.get(pair.other.result) is not None:
        return
    yield from ((norm, axis) for axis, length in enumerate(pair.source.values.shape) if length == norm.mean.size)


def _ratios(one: Array, two: Array, axis: int) -> Array:
    """Return the factor of each channel from the first to the second: the median over its large numbers."""
    a, b = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (one, two))
    loud = (np.abs(a) >= _LOUD * np.abs(a).max(1, keepdims=True, initial=0.0)) & (a != 0) & (b != 0)
    return np.array([np.median(q[m] / p[m]) if m.any() else 0.0 for p, q, m in zip(a, b, loud, strict=True)])


def _difference(made: Expected, quantile: float = 0.5) -> float:
    """Return a quantile over channels of their relative difference; numbers that became 0 do not count."""
    a, b = (np.moveaxis(each, made.axis, 0).reshape(each.shape[made.axis], -1) for each in (made.numbers, made.found))
    kept = b != 0
    signal, noise = np.sum(np.square(a) * kept, axis=1), np.sum(np.square(a - b) * kept, axis=1)
    heard = (signal > 0) | (noise > 0)
    off = np.sqrt(noise[heard] / np.maximum(signal[heard], _TINY))
    return float(np.quantile(off, quantile)) if heard.any() else 0.0


def along(values: Array, rank: int, axis: int) -> Array:
    """Reshape a vector with one number per channel so that it broadcasts with a tensor."""
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)
