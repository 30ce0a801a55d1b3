"""What operations compute, in words and numbers that are the same for every framework.

A framework's operation computes one primitive (``Conv``), several (a separable
convolution, a layer with an activation), or something that is not known here.
The primitives hold what counting and predicting costs needs and what the names
and shapes of tensors do not tell: strides, groups, the lengths that a product
sums over.  :mod:`nnpipe.analysis.operation_costs` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from nnpipe.core.errors import SpecMismatch

Length = int | None
"""The length of an axis; ``None`` if it is free or not known."""

LARGEST = 1 << 48
"""Primitives with greater lengths are refused: they come from damaged files."""
_RANK_LIMIT = 32

PlainKind = Literal[
    "elementwise", "reduction", "normalisation", "softmax", "resize", "quantisation", "gather", "movement", "view"
]
"""Kinds of primitives that a function and the sizes of tensors describe.

``gather`` reads only the rows that are asked for.  ``movement`` copies values and computes nothing (transpose,
concatenation, padding), and ``view`` does not even copy (reshape).
"""


@dataclass(frozen=True)
class Primitive:
    """One elementary computation of an operation; the subclasses say which."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, tuple) and len(value) > _RANK_LIMIT:
                raise SpecMismatch(f"{type(self).__name__}: {name} has {len(value)} axes")
            for length in value if isinstance(value, tuple) else (value,):
                if isinstance(length, int) and not 0 <= length <= LARGEST:
                    raise SpecMismatch(f"{type(self).__name__}: {name} cannot be {length}")

    @property
    def kind(self) -> str:
        """Return the word for tables and groups, such as ``"depthwise convolution"``."""
        raise NotImplementedError

    @property
    def details(self) -> str:
        """Return what the kind does not tell, such as ``"3 x 3, stride 2, 32 groups"``."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the kind and all fields in JSON form."""
        return {"kind": self.kind, **{each.name: _json(getattr(self, each.name)) for each in fields(self)}}


@dataclass(frozen=True)
class ConvolutionPrimitive(Primitive):
    """A convolution over any number of axes.

    Parameters
    ----------
    positions
        How often the kernel is applied: samples times positions in the output (in the input if ``transposed``).
    kernel
        The length of each axis of the kernel.
    in_channels, out_channels
        The numbers of channels of the whole input and output.
    groups
        The number of groups, of which each reads its share of the channels only.
    strides, dilations
        One number for each axis of the kernel.
    transposed
        Whether each input value adds to several outputs.

    Examples
    --------
    >>> found = ConvolutionPrimitive(112 * 112, (3, 3), 32, 32, groups=32, strides=(2, 2))
    >>> found.kind, found.details
    ('depthwise convolution', '3 x 3, stride 2, 32 groups')
    """

    positions: Length
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    groups: int = 1
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    transposed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise SpecMismatch(
                f"a convolution of {self.in_channels} to {self.out_channels} channels cannot have {self.groups} groups"
            )

    @property
    def kind(self) -> str:
        """Return which convolution it is."""
        if self.transposed:
            return "transposed convolution"
        if self.groups == self.in_channels > 1:
            return "depthwise convolution"
        return "pointwise convolution" if all(length == 1 for length in self.kernel) else "convolution"

    @property
    def details(self) -> str:
        """Return the window, and the groups if there are several."""
        window = _window(self.kernel, self.strides, self.dilations)
        return f"{window}, {self.groups} groups" if self.groups > 1 else window


@dataclass(frozen=True)
class MatrixProduct(Primitive):
    """Products of matrices of ``rows`` by ``depth`` and ``depth`` by ``columns`` values, ``batch`` times."""

    batch: Length
    rows: Length
    depth: Length
    columns: Length

    @property
    def kind(self) -> str:
        """Return ``"matrix product"``."""
        return "matrix product"

    @property
    def details(self) -> str:
        """Return the sizes: rows, the length that is summed over, columns."""
        sizes = _times((self.rows, self.depth, self.columns))
        return sizes if self.batch == 1 else f"{_length(self.batch)} of {sizes}"


@dataclass(frozen=True)
class AttentionPrimitive(Primitive):
    """Scaled products of queries and keys, a softmax, and products with the values.

    Parameters
    ----------
    batch
        Samples times heads.
    queries, keys
        The lengths of the two sequences.
    depth, value_depth
        The numbers in a query and in a value, for each head.
    """

    batch: Length
    queries: Length
    keys: Length
    depth: Length
    value_depth: Length

    @property
    def kind(self) -> str:
        """Return ``"attention"``."""
        return "attention"

    @property
    def details(self) -> str:
        """Return the lengths of the sequences, and the depth."""
        sizes = f"{_length(self.queries)} queries, {_length(self.keys)} keys"
        return f"{_length(self.batch)} of {sizes}, {_length(self.depth)} deep"


@dataclass(frozen=True)
class RecurrentPrimitive(Primitive):
    """One layer of a recurrent network.

    Parameters
    ----------
    cell
        The kind of cell, with 4, 3 and 1 products for each unit and step.
    batch, steps
        The numbers of sequences and of their elements.
    inputs, units
        The numbers in an element and in the state.
    directions
        2 if the sequence is also read backwards.
    """

    cell: Literal["lstm", "gru", "rnn"]
    batch: Length
    steps: Length
    inputs: Length
    units: Length
    directions: int = 1

    @property
    def kind(self) -> str:
        """Return the kind of cell."""
        return self.cell

    @property
    def details(self) -> str:
        """Return the steps, the numbers of an element and of the state, and the directions if there are two."""
        sizes = f"{_length(self.steps)} steps, {_length(self.inputs)} to {_length(self.units)}"
        return f"{sizes}, {self.directions} directions" if self.directions > 1 else sizes


@dataclass(frozen=True)
class PoolingPrimitive(Primitive):
    """A maximum or mean over windows of the lengths ``kernel``; the kernel has no axes if the whole input is one."""

    function: str
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Return ``"pooling"``."""
        return "pooling"

    @property
    def details(self) -> str:
        """Return the function and the window."""
        return f"{self.function} {_window(self.kernel, self.strides, self.dilations)}".rstrip()


@dataclass(frozen=True)
class PlainPrimitive(Primitive):
    """A primitive of which a function and the sizes of its tensors say all.

    Parameters
    ----------
    plain
        What sort of computation it is.
    function
        The function in the framework's word: ``"relu"``, ``"concat"``.
    axes
        The axes that it works along; empty if they do not matter or are not known.
    epsilon
        What a normalisation adds to variances; ``None`` for others, or if it is not known.
    """

    plain: PlainKind
    function: str
    axes: tuple[int, ...] = ()
    epsilon: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Accept negative axes, which count from the last one."""
        if len(self.axes) > _RANK_LIMIT or any(not -_RANK_LIMIT <= axis < _RANK_LIMIT for axis in self.axes):
            raise SpecMismatch(f"{self.function}: impossible axes {self.axes}")

    @property
    def kind(self) -> str:
        """Return the sort of computation."""
        return self.plain

    @property
    def details(self) -> str:
        """Return the function."""
        return self.function


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _window(kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> str:
    told = [_times(kernel)]
    for word, lengths in (("stride", strides), ("dilation", dilations)):
        if any(length != 1 for length in lengths):
            told.append(f"{word} {lengths[0] if len(set(lengths)) == 1 else _times(lengths)}")
    return ", ".join(each for each in told if each)


def _times(lengths: tuple[Length, ...]) -> str:
    return " x ".join(map(_length, lengths))


def _length(length: Length) -> str:
    return "?" if length is None else str(length)
