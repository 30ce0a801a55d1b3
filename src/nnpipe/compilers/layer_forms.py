"""The forms in which the weights of a layer can be stored, as text: ``int4``, ``cluster16``,
``prune50+int6``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name

AS_IT_IS = "as-it-is"
FORMS = (
    "as-it-is, float16, int2 to int8, cluster2 to cluster256, prune1 to prune99, or for example "
    "prune50+cluster16"
)
_PART = re.compile(r"(int|cluster|prune)(\d{1,3})")


@dataclass(frozen=True)
class LayerForm:
    """How the weights of a layer are stored.

    Parameters
    ----------
    levels
        ``grid`` for evenly spaced values, ``cluster`` for values that k-means finds, ``half`` for
        16-bit floats, and an empty text if values are kept.
    count
        The greatest number of different values, without the zeros of a pruned layer.
    sparsity
        The share of weights that are 0.
    """

    levels: Literal["", "grid", "cluster", "half"] = ""
    count: int = 0
    sparsity: float = 0.0

    @classmethod
    def parse(cls, text: str) -> LayerForm:
        """Return the form of a text.

        Raises
        ------
        ConfigError
            If it is no form.

        Examples
        --------
        >>> LayerForm.parse("prune50+int4")
        LayerForm(levels='grid', count=15, sparsity=0.5)
        """
        if text == AS_IT_IS:
            return cls()
        levels, count, sparsity = "", 0, 0.0
        for part in text.split("+"):
            found = _PART.fullmatch(part)
            kind, number = (found[1], int(found[2])) if found else (part, 0)
            again = bool(sparsity) if kind == "prune" else bool(levels)
            if again:
                raise ConfigError(f"{text!r} is no form of a layer: its parts exclude each other")
            if kind == "float16":
                levels = "half"
            elif kind == "int" and 2 <= number <= 8:
                levels, count = "grid", 2**number - 1
            elif kind == "cluster" and 2 <= number <= 256:
                levels, count = "cluster", number
            elif kind == "prune" and 1 <= number <= 99:
                sparsity = number / 100
            else:
                raise ConfigError(f"{text!r} is no form of a layer; there are {FORMS}")
        return cls(levels, count, sparsity)  # type: ignore[arg-type]


def assign_forms(entries: Sequence[str], layers: Sequence[str]) -> dict[str, LayerForm]:
    """Return the form of each layer that entries such as ``block*=int4`` name; the last that fits
    counts.

    Parameters
    ----------
    entries
        Names or patterns of layers, each with ``=`` and a form.
    layers
        The names of all layers.

    Raises
    ------
    ConfigError
        If an entry has another form, or fits no layer.
    """
    found: dict[str, LayerForm] = {}
    for entry in entries:
        pattern, equals, form = entry.rpartition("=")
        if not equals or not pattern:
            raise ConfigError(
                f"--layers {entry!r}: expected a layer and its form, such as conv1=int4"
            )
        chosen = [layer for layer in layers if layer == pattern]
        chosen = chosen or [layer for layer in layers if fnmatchcase(layer, pattern)]
        if not chosen:
            hint = suggest_name(pattern, layers) or f"; there are: {', '.join(layers)}"
            raise ConfigError(f"--layers: the model has no layer {pattern!r}{hint}")
        found |= dict.fromkeys(chosen, LayerForm.parse(form))
    return found


# Rounding the weights of a layer to few values, such that the layer's results change least.
#
# The inputs of a layer are correlated, so the error of one weight can be made up for by those that
# are not rounded yet. Weights are rounded column by column, and each error is spread over the
# columns to come by the inverse of the inputs' second moments (E. Frantar et al., "GPTQ", 2022,
# arXiv:2210.17323; for zeros: E. Frantar and D. Alistarh, "SparseGPT", 2023, arXiv:2301.00774).
# Other than there, the values may be those that k-means finds, each weight counted by how strongly
# its input moves the result.

# of the whole numbers that weights are rounded to, in units of their channel's scale
_LARGEST = 127
# of the mean second moment, added to each: inputs that hardly vary would make errors explode
_DAMPING = 0.01
_BLOCK = 64  # columns whose errors are spread together
_ROUNDS = 100

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RoundedWeights:
    """Weights that have few values.

    Parameters
    ----------
    places
        Which value each weight has: ``(channels, inputs)``, int64.
    book
        The values, in units of a channel's scale: int8 ``(values,)``; the first one is 0 if weights
        were pruned.
    pruned
        Whether the first value stands for pruned weights.
    """

    places: npt.NDArray[np.int64]
    book: npt.NDArray[np.int8]
    pruned: bool

    @property
    def values(self) -> npt.NDArray[np.int8]:
        """The weights in units of their channel's scale: int8 ``(channels, inputs)``."""
        found: npt.NDArray[np.int8] = self.book[self.places]
        return found


def compute_channel_scales(weights: Floats) -> npt.NDArray[np.float32]:
    """Return the scale of each channel, by which its greatest weight is 127; 1 for a channel of
    zeros.
    """
    most = np.abs(weights).max(axis=1)
    found: npt.NDArray[np.float32] = np.where(most > 0, most / _LARGEST, 1.0).astype(np.float32)
    return found


def select_unpruned_weights(
    weights: Floats, moments: Floats | None, sparsity: float
) -> npt.NDArray[np.bool_]:
    """Return which weights of each channel are not pruned: those that move the result most.

    Parameters
    ----------
    weights
        ``(channels, inputs)``.
    moments
        The second moments of the inputs, ``(inputs, inputs)``; None if they are not known.
    sparsity
        The share to prune in each channel.
    """
    moved = np.abs(weights) if moments is None else np.abs(weights) * np.sqrt(np.diag(moments))
    order = np.argsort(moved, axis=1, kind="stable")
    kept = np.ones(weights.shape, bool)
    np.put_along_axis(kept, order[:, : int(sparsity * weights.shape[1])], False, axis=1)
    return kept


def round_weights(
    weights: Floats, scales: npt.NDArray[np.float32], moments: Floats | None, form: LayerForm
) -> RoundedWeights:
    """Return weights rounded to the values of a form.

    Parameters
    ----------
    weights
        ``(channels, inputs)``.
    scales
        What 1 stands for in each channel: ``(channels,)``.
    moments
        The second moments of the inputs, ``(inputs, inputs)``; None to round each weight by itself.
    form
        With ``grid`` or ``cluster``.
    """
    units = weights / scales[:, None].astype(np.float64)
    kept = (
        select_unpruned_weights(weights, moments, form.sparsity)
        if form.sparsity
        else np.ones(weights.shape, bool)
    )
    if form.levels == "grid":
        half = form.count // 2
        book = np.rint(np.arange(-half, half + 1) * (_LARGEST / half)).astype(np.int8)
    else:
        counts = np.ones(weights.shape[1]) if moments is None else np.diag(moments)
        importance = np.maximum(counts, 1e-12) * scales[:, None].astype(np.float64) ** 2
        book = _find_clusters(units[kept], importance[kept], form.count)
    if form.sparsity:
        book = np.concatenate([np.zeros(1, np.int8), book[book != 0]])
    places = _find_book_places(units, kept, moments, book, bool(form.sparsity))
    return RoundedWeights(places, book, bool(form.sparsity))


def prune_weights(weights: Floats, moments: Floats | None, sparsity: float) -> Floats:
    """Return weights of which a share is 0, and the others make up for that if moments are
    known.
    """
    kept = select_unpruned_weights(weights, moments, sparsity)
    found = weights.copy()
    if moments is None:
        return np.where(kept, found, 0.0)
    order, factor = _prepare_error_spread(moments)
    found, kept = found[:, order], kept[:, order]
    for column in range(found.shape[1]):
        lost = np.where(kept[:, column], 0.0, found[:, column]) / factor[column, column]
        found[:, column + 1 :] -= np.outer(lost, factor[column, column + 1 :])
    pruned: Floats = np.where(kept, found, 0.0)[:, np.argsort(order)]
    return pruned


def _find_clusters(values: Floats, importance: Floats, count: int) -> npt.NDArray[np.int8]:
    """Return the values that k-means finds for numbers of unequal importance, as distinct whole
    numbers.
    """
    if not values.size:
        return np.zeros(1, np.int8)
    order = np.argsort(values, kind="stable")
    values, importance = values[order], importance[order]
    weight = np.concatenate([[0.0], np.cumsum(importance)])
    total = np.concatenate([[0.0], np.cumsum(importance * values)])
    centres = np.linspace(values[0], values[-1], count)
    for _ in range(_ROUNDS):
        edges = np.searchsorted(values, (centres[1:] + centres[:-1]) / 2, side="right")
        bounds = np.concatenate([[0], edges, [len(values)]])
        weights, sums = np.diff(weight[bounds]), np.diff(total[bounds])
        moved = np.where(weights > 0, sums / np.maximum(weights, 1e-300), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    found: npt.NDArray[np.int8] = np.unique(
        np.clip(np.rint(centres), -_LARGEST, _LARGEST).astype(np.int8)
    )
    return found


def _prepare_error_spread(moments: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the order of the columns, the strongest inputs first, and how an error spreads over
    those to come.
    """
    size = len(moments)
    diagonal = np.diag(moments)
    order = np.argsort(-diagonal, kind="stable")
    damping = _DAMPING * float(diagonal.mean()) or 1.0
    inverse = np.linalg.inv(moments[order][:, order] + damping * np.eye(size))
    return order, np.linalg.cholesky((inverse + inverse.T) / 2).T


def _find_book_places(
    units: Floats,
    kept: npt.NDArray[np.bool_],
    moments: Floats | None,
    book: npt.NDArray[np.int8],
    pruned: bool,
) -> npt.NDArray[np.int64]:
    """Return the place in the book of each weight; of pruned ones 0, which no other weight has
    then.
    """
    own = book[1:] if pruned and len(book) > 1 else book
    shift = len(book) - len(own)
    ranks = np.argsort(own, kind="stable")
    values = own[ranks].astype(np.float64)
    middles = (values[1:] + values[:-1]) / 2

    def find_nearest(column: Floats, keeps: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.where(keeps, ranks[np.searchsorted(middles, column)] + shift, 0)

    if moments is None:
        return find_nearest(units, kept)
    order, factor = _prepare_error_spread(moments)
    left, kept = units[:, order].copy(), kept[:, order]
    found = np.zeros(units.shape, np.int64)
    for start in range(0, units.shape[1], _BLOCK):
        stop = min(start + _BLOCK, units.shape[1])
        errors = np.zeros((len(units), stop - start))
        for column in range(start, stop):
            found[:, column] = find_nearest(left[:, column], kept[:, column])
            error = (left[:, column] - book[found[:, column]]) / factor[column, column]
            left[:, column + 1 : stop] -= np.outer(error, factor[column, column + 1 : stop])
            errors[:, column - start] = error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return found[:, np.argsort(order)]
