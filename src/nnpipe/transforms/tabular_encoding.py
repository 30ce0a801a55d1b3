"""The encoding of the columns of a table as the inputs of a model."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.category_code import encode_category
from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import InputTransform
from nnpipe.core.layout import Shape
from nnpipe.core.tensors import show_shape

_MOST_CATEGORIES = 1 << 16


class TabularEncoding(InputTransform):
    """Fills gaps of a table's columns, scales its numbers, and encodes its categories.

    A sample has a number for each column; the number of a category is its
    :func:`~nnpipe.core.category_code.encode_category`, and a gap is NaN.  Numbers become ``(x -
    mean) / deviation``. A category becomes zeros with a one (``one_hot``), or its place among the
    categories (``ordinal``); a gap and a category that is not known become zeros, or -1.

    Examples
    --------
    >>> encoding = TabularEncoding(
    ...     fills=(20.0, 0.0), means=(20.0, 0.0), deviations=(10.0, 1.0), categories=("1=blue", "1=red")
    ... )
    >>> encoding.apply(np.array([[30.0, encode_category("red")], [np.nan, encode_category("green")]]))
    array([[1., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """

    fills: tuple[float, ...] = argument(
        (0.0,), help="for each column, the number that fills its gaps"
    )
    means: tuple[float, ...] = argument((0.0,), help="for each column, the number to subtract")
    deviations: tuple[float, ...] = argument(
        (1.0,), help="for each column, the number to divide by"
    )
    categories: tuple[str, ...] = argument(
        (),
        help="the categories, in order, each with the number of its column, from 0, before it",
        metavar="COLUMN=TEXT",
    )
    encoding: Literal["one_hot", "ordinal"] = argument("one_hot", help="how categories are encoded")

    def validate(self) -> None:
        """Check that all columns are described, and the categories belong to them."""
        columns = len(self.fills)
        numbers = (*self.fills, *self.means, *self.deviations)
        if not columns or {len(self.means), len(self.deviations)} != {columns}:
            raise ConfigError(
                f"{type(self).__name__}: fills, means and deviations have a number for each "
                f"column, not {columns}, {len(self.means)} and {len(self.deviations)}"
            )
        if not all(map(math.isfinite, numbers)) or 0.0 in self.deviations:
            raise ConfigError(
                f"{type(self).__name__} takes finite numbers, and deviations divide: none can be 0"
            )
        if len(self.categories) > _MOST_CATEGORIES:
            raise ConfigError(f"{type(self).__name__}: more than {_MOST_CATEGORIES:,} categories")
        for text in self.categories:
            number, is_, _ = text.partition("=")
            if (
                not is_
                or not (number.isascii() and number.isdecimal() and len(number) < 10)
                or int(number) >= columns
            ):
                raise ConfigError(
                    f"{type(self).__name__}: {text[:40]!r} should be COLUMN=TEXT, the column from "
                    f"0 to {columns - 1}"
                )
        for column, codes in self._codes.items():
            if len(np.unique(codes)) < len(codes):
                raise ConfigError(
                    f"{type(self).__name__}: a category of column {column} is given twice"
                )

    @cached_property
    def _codes(self) -> dict[int, npt.NDArray[np.float64]]:
        """The codes of the categories of each column that has some."""
        found: dict[int, list[float]] = {}
        for text in self.categories:
            number, _, category = text.partition("=")
            found.setdefault(int(number), []).append(encode_category(category))
        return {column: np.array(codes) for column, codes in found.items()}

    def _get_width(self, column: int) -> int:
        return (
            len(self._codes[column]) if column in self._codes and self.encoding == "one_hot" else 1
        )

    def shape(self, sample: Shape) -> Shape:
        """Return the number of values that encode a row, ``(values,)``."""
        if sample != (len(self.fills),):
            raise ConfigError(
                f"{type(self).__name__} encodes rows of {len(self.fills)} columns, not "
                f"{show_shape(sample)}"
            )
        return (sum(map(self._get_width, range(len(self.fills)))),)

    def format_description(self) -> str:
        """Return the number of columns, and how categories are encoded."""
        if not self.categories:
            return f"{len(self.fills)} columns filled and scaled"
        how = self.encoding.replace("_", "-")
        return (
            f"{len(self.fills)} columns filled and scaled, categories of {len(self._codes)} as "
            f"{how}"
        )

    def _apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows = samples.astype(np.float64)
        found = np.zeros((len(rows), sum(map(self._get_width, range(rows.shape[1])))), np.float32)
        start = 0
        for column, (fill, mean, deviation) in enumerate(
            zip(self.fills, self.means, self.deviations, strict=True)
        ):
            values, stop = rows[:, column], start + self._get_width(column)
            if column in self._codes:
                same = values[:, None] == self._codes[column]
                one_hot = self.encoding == "one_hot"
                found[:, start:stop] = (
                    same if one_hot else np.where(same.any(1), same.argmax(1), -1)[:, None]
                )
            else:
                found[:, start] = (np.where(np.isnan(values), fill, values) - mean) / deviation
            start = stop
        return found
