"""Primitives are checked at birth, and their names tell convolutions apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitives import ConvolutionPrimitive, MatrixProduct, PlainPrimitive, PoolingPrimitive, Primitive


@pytest.mark.parametrize(
    ("primitive", "kind"),
    [
        (ConvolutionPrimitive(9, (3, 3), 8, 16), "convolution"),
        (ConvolutionPrimitive(9, (1, 1), 8, 16), "pointwise convolution"),
        (ConvolutionPrimitive(9, (3,), 8, 8, groups=8), "depthwise convolution"),
        (ConvolutionPrimitive(9, (3, 3), 8, 16, groups=2), "convolution"),
        (ConvolutionPrimitive(9, (1, 1), 1, 16), "pointwise convolution"),
        (ConvolutionPrimitive(9, (2, 2), 8, 8, groups=8, transposed=True), "transposed convolution"),
    ],
)
def test_the_kind_of_a_convolution_follows_from_its_groups_and_kernel(primitive: Primitive, kind: str) -> None:
    assert primitive.kind == kind


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
