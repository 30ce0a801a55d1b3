"""How conversions change the weights of a model: in form, by pruned channels and folded
normalisations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import Array, find_quantization_step
from nnpipe.analysis.weights import Normalisation, Weight, WeightPair, Weights, match_weights
from nnpipe.core.artifact import INTEGERS, Claim, get_lowest_precision, select_weight_changes


@dataclass(frozen=True)
class WeightChange:
    """How a conversion changed one tensor of weights.

    Parameters
    ----------
    name, other
        The names of the tensor in the source and in the other model.
    by
        How the two were matched.
    folded
        The normalisation of the source that was folded into it.
    largest
        The largest difference, relative to the largest number.
    steps
        The same in steps of the integers with which it is stored.
    changed
        The power of the difference, relative to that of the source's numbers.
    zeros
        The share of its numbers that have become 0.
    values
        The number of different values, if it is clustered.
    axis, channels
        The channels that violate the claims, and their axis in the source's tensor.
    dead
        The channels in which all numbers have become 0.
    wrong
        A description of the violation; empty if there is none.
    remark
        A description of what cannot be checked, or of a difference without effect.
    rescaled
        Whether it is a kernel with the source's numbers but for a factor and a constant of each
        channel.
    """

    name: str
    other: str
    by: str
    folded: str
    largest: float
    steps: float | None
    changed: float
    zeros: float
    values: int | None
    axis: int
    channels: tuple[int, ...]
    dead: tuple[int, ...]
    wrong: str = ""
    remark: str = ""
    rescaled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {**asdict(self), "channels": list(self.channels), "dead": list(self.dead)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WeightChange:
        """Make the object from the output of :meth:`to_json`."""
        return cls(**{**data, "channels": tuple(data["channels"]), "dead": tuple(data["dead"])})


@dataclass(frozen=True)
class WeightComparison:
    """The comparison of the weights of two models.

    Parameters
    ----------
    claims
        The claims of the conversion.
    tensors
        The compared tensors, in the order of the source.
    left
        The tensors of the source without a counterpart.
    taken
        The share of all weights that was removed with whole channels.
    """

    claims: tuple[Claim, ...]
    tensors: tuple[WeightChange, ...]
    left: tuple[str, ...] = ()
    taken: float = 0.0

    @property
    def wrong(self) -> tuple[WeightChange, ...]:
        """The tensors that violate the claims, those with most wrong channels first."""
        return tuple(sorted((t for t in self.tensors if t.wrong), key=lambda t: -t.changed))

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {
            "claims": list(self.claims),
            "told": self.describe(),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "left": list(self.left),
            "taken": self.taken,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WeightComparison:
        """Make the object from the output of :meth:`to_json`."""
        tensors = tuple(map(WeightChange.from_json, data["tensors"]))
        return cls(tuple(data["claims"]), tensors, tuple(data["left"]), float(data["taken"]))

    def describe(self) -> str:
        """Describe the changes of the weights in words."""
        if not self.tensors:
            return "none has a counterpart" if self.left else "there are none"
        parts = []
        changes, numbers = select_weight_changes(self.claims), get_lowest_precision(self.claims)
        stepped = [t.steps for t in self.tensors if t.steps is not None and not t.wrong]
        if "pruned" in changes:
            zeros = (
                f"up to {100 * max((t.zeros for t in self.tensors), default=0.0):.3g} % of a "
                f"tensor set to 0"
            )
            parts.append(
                f"{100 * self.taken:.3g} % taken away with whole channels" if self.taken else zeros
            )
        if "clustered" in changes:
            counts = [t.values for t in self.tensors if t.values]
            parts.append(
                f"up to {max(counts)} different numbers in a tensor"
                if counts
                else "each near one of few numbers"
            )
        if "fine-tuned" in changes:
            amount = max(float(np.sqrt(t.changed)) for t in self.tensors)
            parts.append(f"tensors changed by up to {100 * amount:.2g} %")
        elif stepped and numbers in INTEGERS:
            parts.append(f"rounded to integers, by up to {max(stepped):.2g} of a step")
        elif numbers != "float":
            parts.append(f"rounded to {numbers}")
        elif not self.wrong and not any(tensor.remark for tensor in self.tensors):
            parts.append(
                "the others unchanged" if "pruned" in changes else "" if changes else "unchanged"
            )
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        count = len(self.tensors) + len(self.left)
        told = f"weights: {len(self.tensors)} of {count} tensors compared"
        if words := self.describe():
            told += f"; {words}"
        lines = [told]
        if self.wrong:
            lines[0] += f"; {len(self.wrong)} not as {' and '.join(self.claims)} allows:"
            lines += [
                f"{n}. {tensor.name!r}: {tensor.wrong}"
                for n, tensor in enumerate(self.wrong[:3], 1)
            ]
        lines += [
            f"   {tensor.name!r}: {tensor.remark}" for tensor in self.tensors if tensor.remark
        ][:3]
        return "\n".join(lines)


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
        The addition to the bias by a layer normalisation before the operation, if that was folded
        into the kernel.
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

    def unfold_normalisation(self) -> tuple[Array, Array]:
        """Return the expected and the found values before the normalisation was folded in."""
        if self.norm is None:
            return self.numbers, self.found
        factor = broadcast_along(self.norm.factor, self.numbers.ndim, self.axis)
        known = np.where(factor != 0, factor, 1.0)
        # The last bits of a float are lost; numbers that were equal before must become equal again.
        return self.numbers / known, np.round(self.found / known / self._grain) * self._grain

    @property
    def _grain(self) -> float:
        return float(
            2.0 ** np.floor(np.log2(max(float(np.abs(self.found).max(initial=0.0)), 1e-30) * 1e-5))
        )


def compute_expected_kernel(pair: WeightPair, source: Weights, other: Weights) -> Expected:
    """Return the expected values of a kernel: unchanged, or with the following normalisation folded
    in.

    Parameters
    ----------
    pair
        The kernel.
    source, other
        The weights of both models.
    """
    plain, *folded = _iter_candidates(pair, source, other)
    # Both explain a kernel of zeros, but only a normalisation with scales of 0 makes one: the first
    # of equals is taken.
    nearest = min(
        (*folded, plain),
        key=lambda made: (_compute_difference(made, _SOME) > _EXACT, _compute_difference(made)),
    )
    made, left = _apply_channel_factors(nearest)
    for after in _fold_affine(pair, source) if made.norm is None and left > _EXACT else ():
        candidate, rest = _apply_channel_factors(after)
        if rest < left:
            made, left = candidate, rest
    return made


def _apply_channel_factors(made: Expected) -> tuple[Expected, float]:
    """Return expected values with the factors of channels, if these explain most of a
    difference, and what is left.
    """
    off = _compute_difference(made)
    if off <= _SCALED:
        return made, off
    ratio = _compute_channel_ratios(made.numbers, made.found, made.axis)
    left = _compute_difference(
        replace(made, numbers=made.numbers * broadcast_along(ratio, made.numbers.ndim, made.axis))
    )
    return (replace(made, factors=ratio), left) if left < _PART * off else (made, off)


def _fold_affine(pair: WeightPair, source: Weights) -> Iterator[Expected]:
    """Yield the kernel with the scale of the layer normalisation before it folded in, and the
    shift in its bias.
    """
    raw, affine = pair.source.values, source.affine.get(pair.source.operation)
    if affine is None or raw.ndim != 2:
        return
    step = None if pair.other.step is None else pair.to_source_axes(pair.other.step)
    for axis, length in enumerate(raw.shape):
        if length == affine.scale.size:
            numbers, added = (
                raw * broadcast_along(affine.scale, 2, axis),
                np.tensordot(raw, affine.shift, (axis, 0)),
            )
            yield Expected(
                numbers,
                pair.get_aligned_values(),
                step,
                axis=1 - axis,
                shift=added,
                before=affine.name,
            )


def compute_expected_bias(expected: Expected, bias: Array | None) -> tuple[Array, float]:
    """Return the bias that results from a folded normalisation, and the greatest number in its
    computation.
    """
    norm = expected.norm
    assert norm is not None
    moved = norm.factor * ((0.0 if bias is None else bias) - norm.mean)
    found: Array = norm.beta + moved
    return found, float(np.max(np.abs(moved), initial=0.0) + np.max(np.abs(norm.beta), initial=0.0))


def _iter_candidates(pair: WeightPair, source: Weights, other: Weights) -> Iterator[Expected]:
    raw, found = pair.source.values, pair.get_aligned_values()
    stated, seen_step = pair.other.step, find_quantization_step(pair.other.values)
    step = (
        np.array(seen_step)
        if stated is None and seen_step
        else None
        if stated is None
        else pair.to_source_axes(stated)
    )
    yield Expected(raw, found, step)
    for norm, axis in _iter_foldings(pair, source, other):
        yield Expected(raw * broadcast_along(norm.factor, raw.ndim, axis), found, step, norm, axis)


def find_bias_vector(kernel: Weight, weights: Weights) -> Weight | None:
    """Return the bias vector of the operation of a kernel, if there is one."""
    return next(
        (w for w in weights.tensors if w.operation == kernel.operation and w.values.ndim == 1), None
    )


def _iter_foldings(
    pair: WeightPair, source: Weights, other: Weights
) -> Iterator[tuple[Normalisation, int]]:
    """Yield the axes along which the next normalisation may be folded into a kernel."""
    norm = source.normalised.get(pair.source.result)
    if norm is None or other.normalised.get(pair.other.result) is not None:
        return
    yield from (
        (norm, axis)
        for axis, length in enumerate(pair.source.values.shape)
        if length == norm.mean.size
    )


def _compute_channel_ratios(one: Array, two: Array, axis: int) -> Array:
    """Return the factor of each channel from the first to the second: the median over its large
    numbers.
    """
    a, b = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (one, two))
    loud = (np.abs(a) >= _LOUD * np.abs(a).max(1, keepdims=True, initial=0.0)) & (a != 0) & (b != 0)
    return np.array(
        [np.median(q[m] / p[m]) if m.any() else 0.0 for p, q, m in zip(a, b, loud, strict=True)]
    )


def _compute_difference(made: Expected, quantile: float = 0.5) -> float:
    """Return a quantile over channels of their relative difference; numbers that became 0 do not
    count.
    """
    a, b = (
        np.moveaxis(each, made.axis, 0).reshape(each.shape[made.axis], -1)
        for each in (made.numbers, made.found)
    )
    kept = b != 0
    signal, noise = np.sum(np.square(a) * kept, axis=1), np.sum(np.square(a - b) * kept, axis=1)
    heard = (signal > 0) | (noise > 0)
    off = np.sqrt(noise[heard] / np.maximum(signal[heard], _TINY))
    return float(np.quantile(off, quantile)) if heard.any() else 0.0


def broadcast_along(values: Array, rank: int, axis: int) -> Array:
    """Reshape a vector with one number per channel so that it broadcasts with a tensor."""
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def select_kept_channels(source: Weights, other: Weights) -> Weights:
    """Return the source with only those channels that the other model has kept, in the source's
    order.

    Kept channels are found by their numbers, in operations with equal names and orders of axes.
    Tensors whose channels cannot be found are returned unchanged.
    """
    there = {(weight.operation, weight.kind, weight.place): weight for weight in other.tensors}
    kept: dict[str, Array] = {}
    tensors: list[Weight] = []
    for weight in source.tensors:
        theirs = there.get((weight.operation, weight.kind, weight.place))
        if (
            weight.values.ndim > 1
            and theirs is not None
            and _is_smaller(weight.values, theirs.values)
        ):
            found = _find_contained_channels(weight.values, theirs.values)
            if found is not None:
                rows, columns = found
                weight = replace(weight, values=weight.values[rows][:, columns])
                kept[weight.operation] = rows
                norm = source.normalised.get(weight.result)
                if norm is not None:
                    kept[norm.name] = rows
        tensors.append(weight)
    for number, weight in enumerate(tensors):
        chosen = kept.get(weight.operation)
        if weight.values.ndim == 1 and chosen is not None and chosen.max() < weight.values.size:
            tensors[number] = replace(weight, values=weight.values[chosen])
    normalised = {
        result: _select_rows(norm, kept.get(norm.name))
        for result, norm in source.normalised.items()
    }
    return Weights(tuple(tensors), source.layout, normalised)


def _select_rows(norm: Normalisation, rows: Array | None) -> Normalisation:
    if rows is None:
        return norm
    gamma, beta, mean, variance = (
        array[rows] for array in (norm.gamma, norm.beta, norm.mean, norm.variance)
    )
    return replace(norm, gamma=gamma, beta=beta, mean=mean, variance=variance)


def _is_smaller(values: Array, theirs: Array) -> bool:
    pairs = list(zip(values.shape, theirs.shape, strict=False))
    return (
        values.ndim == theirs.ndim
        and values.shape != theirs.shape
        and all(one >= two for one, two in pairs)
    )


def _find_contained_channels(values: Array, theirs: Array) -> tuple[Array, Array] | None:
    """Return the rows and the columns of a tensor that another tensor contains."""
    if values.shape[2:] != theirs.shape[2:]:
        return None
    size = int(np.prod(values.shape[2:]))
    mine, other = values.reshape(-1, size), theirs.reshape(-1, size)
    places: dict[bytes, int] = {row.tobytes(): number for number, row in enumerate(mine)}
    at = np.array([places.get(row.tobytes(), -1) for row in other]).reshape(theirs.shape[:2])
    rows = [_find_most_common(line[line >= 0] // values.shape[1]) for line in at]
    columns = [_find_most_common(line[line >= 0] % values.shape[1]) for line in at.T]
    if -1 in rows or -1 in columns or len({*rows}) < len(rows) or len({*columns}) < len(columns):
        return None
    return np.sort(rows), np.sort(columns)


def _find_most_common(numbers: Array) -> int:
    return int(np.bincount(numbers).argmax()) if numbers.size else -1


def find_complete_counterparts(source: Weights, other: Weights) -> dict[str, Array]:
    """Return the other model's weights by the source's names; empty if this is not possible for
    every kernel.
    """
    found = find_counterparts(source, other)
    wide = [weight for weight in source.tensors if weight.values.ndim > 1]
    return found if wide and all(weight.name in found for weight in wide) else {}


def find_counterparts(source: Weights, other: Weights) -> dict[str, Array]:
    """Return the other model's numbers for each weight of the source that has a counterpart, by the
    source's names.

    Folded normalisations are divided out again.
    """
    pairs = match_weights(source, other)
    found: dict[str, Array] = {}
    for pair in pairs:
        if pair.source.values.ndim < 2:
            found.setdefault(pair.source.name, pair.other.values)
            continue
        expected = compute_expected_kernel(pair, source, other)
        found[pair.source.name] = expected.found
        if expected.norm is None:
            continue
        factor = broadcast_along(expected.norm.factor, expected.found.ndim, expected.axis)
        kept = factor != 0
        found[pair.source.name] = np.where(
            kept, expected.found / np.where(kept, factor, 1.0), pair.source.values
        )
        own, bias = find_bias_vector(pair.source, source), find_bias_vector(pair.other, other)
        if own is not None:
            found[own.name] = own.values
        beta = next((w for w in source.tensors if w.name == expected.norm.beta_name), None)
        if beta is not None and bias is not None and bias.values.shape == beta.values.shape:
            moved = (
                compute_expected_bias(expected, None if own is None else own.values)[0]
                - expected.norm.beta
            )
            found[beta.name] = bias.values - moved
    return found
