"""Products and Einstein sums have the lengths that numpy's own results have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitives import (
    MatrixProduct,
    build_convolution,
    build_einsum,
    build_linear,
    build_matrix_product,
    multiply_lengths,
)


def macs(found: MatrixProduct) -> int:
    return math.prod(
        length or -1 for length in (found.batch, found.rows, found.depth, found.columns)
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((7, 3, 4), (4, 5)),
        ((4,), (4,)),
    ],
)
def test_a_product_sums_over_the_inner_axis_for_each_value_of_numpys_result(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    result = np.matmul(np.zeros(first), np.zeros(second))
    found = build_matrix_product(first, second)
    assert found.depth == 4
    assert macs(found) == result.size * 4


def test_flipped_matrices_change_places() -> None:
    assert build_matrix_product((4, 3), (5, 4), (True, True)) == MatrixProduct(1, 3, 4, 5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("...ij,jk->...ik", [(7, 2, 3), (3, 4)]),
        ("i,j->ij", [(2,), (3,)]),
        ("abc,cde->abde", [(2, 3, 4), (4, 5, 6)]),
    ],
)
def test_an_einstein_sum_counts_every_combination_of_its_indices(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    found = build_einsum(equation, shapes)
    assert isinstance(found, MatrixProduct)
    result = np.einsum(equation, *(np.zeros(shape) for shape in shapes))
    assert macs(found) == result.size * (found.depth or 0)


def test_an_einstein_sum_of_three_is_not_known() -> None:
    with pytest.raises(SpecMismatch):
        build_einsum("ij,jk,kl->il", [(2, 2)] * 3)


def test_what_is_not_known_stays_unknown() -> None:
    assert multiply_lengths((2, None)) is None
    assert multiply_lengths((0, None)) == 0
    assert build_linear((None, 6), 4, 6) == MatrixProduct(1, None, 6, 4)
    assert build_linear((2, 3, 6), 4, 6) == MatrixProduct(1, 6, 6, 4)
    assert (
        build_convolution(
            (None, 3, 9, 9), (3, 3), (3, 8), (None, 8, 7, 7), channel_axis=1
        ).positions
        is None
    )
