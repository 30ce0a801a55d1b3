"""Primitives are checked at birth, and their names tell convolutions apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)


@pytest.mark.parametrize(
    ("primitive", "kind"),
    [
        (ConvolutionPrimitive(9, (3, 3), 8, 16), "convolution"),
        (ConvolutionPrimitive(9, (1, 1), 8, 16), "pointwise convolution"),
        (ConvolutionPrimitive(9, (3,), 8, 8, groups=8), "depthwise convolution"),
        (ConvolutionPrimitive(9, (3, 3), 8, 16, groups=2), "convolution"),
        (ConvolutionPrimitive(9, (1, 1), 1, 16), "pointwise convolution"),
        (
            ConvolutionPrimitive(9, (2, 2), 8, 8, groups=8, transposed=True),
            "transposed convolution",
        ),
    ],
)
def test_the_kind_of_a_convolution_follows_from_its_groups_and_kernel(
    primitive: Primitive, kind: str
) -> None:
    assert primitive.kind == kind


@pytest.mark.parametrize(
    ("primitive", "details"),
    [
        (ConvolutionPrimitive(9, (3, 5), 8, 16, strides=(1, 1), dilations=(1, 1)), "3 x 5"),
        (
            ConvolutionPrimitive(9, (3, 3), 8, 8, 8, (2, 1), (4, 4)),
            "3 x 3, stride 2 x 1, dilation 4, 8 groups",
        ),
        (MatrixProduct(1, 7, 64, None), "7 x 64 x ?"),
        (MatrixProduct(12, 7, 64, 7), "12 of 7 x 64 x 7"),
        (AttentionPrimitive(8, 10, 20, 64, 32), "8 of 10 queries, 20 keys, 64 deep"),
        (RecurrentPrimitive("lstm", 1, 9, 4, 6, directions=2), "9 steps, 4 to 6, 2 directions"),
        (PoolingPrimitive("max", (3, 3), (2, 2)), "max 3 x 3, stride 2"),
        (PoolingPrimitive("mean"), "mean"),
        (PlainPrimitive("elementwise", "relu"), "relu"),
    ],
)
def test_details_tell_what_the_kind_does_not(primitive: Primitive, details: str) -> None:
    assert primitive.details == details


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (ConvolutionPrimitive, (9, (3, 3), 8, 16, 3)),
        (ConvolutionPrimitive, (9, (3, 3), 8, 16, 0)),
        (ConvolutionPrimitive, (-1, (3, 3), 8, 16)),
        (ConvolutionPrimitive, (1, (3,) * 40, 8, 16)),
        (MatrixProduct, (1, 1 << 60, 1, 1)),
        (PoolingPrimitive, ("max", (-2,))),
        (PlainPrimitive, ("softmax", "softmax", (99,))),
    ],
)
def test_impossible_numbers_are_refused(cls: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(SpecMismatch):
        cls(*arguments)


def test_a_primitive_is_written_as_json() -> None:
    told = json.loads(json.dumps(ConvolutionPrimitive(None, (3, 3), 8, 8, groups=8).to_json()))
    assert told["kind"] == "depthwise convolution"
    assert told["kernel"] == [3, 3]
    assert told["positions"] is None
