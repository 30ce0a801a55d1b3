"""Names and patterns choose tensors to keep in floats, and those that only pass values on go
with them.
"""

from __future__ import annotations

import pytest

from nnpipe.compilers._onnx import find_surviving_tensors
from nnpipe.compilers._quantisation import (
    GraphStep,
    extend_over_passing_steps,
    find_touching_steps,
    match_tensors,
)
from nnpipe.compilers.openvino import OpenVINOCompiler
from nnpipe.compilers.tflite import TFLiteCompiler
from nnpipe.core.errors import ConfigError

STEPS = [
    GraphStep("conv", ("image", "kernel"), ("conv_out",)),
    GraphStep("relu", ("conv_out",), ("relu_out",), passing=True),
    GraphStep("pool", ("relu_out",), ("pooled",), passing=True),
    GraphStep("add", ("pooled", "extra"), ("sum[0]",)),
]


def test_patterns_choose_tensors_and_names_with_brackets_are_names() -> None:
    known = {"conv_out", "relu_out", "pooled", "sum[0]"}
    assert match_tensors(["*_out", "sum[0]"], known, "Quantizer") == {
        "conv_out",
        "relu_out",
        "sum[0]",
    }


def test_an_unknown_name_is_answered_with_those_near_it() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^Quantizer: --keep-float 'reluout' is no tensor .* 'relu_out', 'conv_out'",
    ):
        match_tensors(["reluout"], {"relu_out", "conv_out", "x"}, "Quantizer")


def test_operations_that_only_pass_values_on_join_their_tensors() -> None:
    assert extend_over_passing_steps({"relu_out"}, STEPS) == {"conv_out", "relu_out", "pooled"}
    assert extend_over_passing_steps({"sum[0]"}, STEPS) == {"sum[0]"}
    assert [step.name for step in find_touching_steps({"pooled"}, STEPS)] == ["pool", "add"]


def test_a_tensor_that_was_fused_away_stands_for_the_next_one() -> None:
    assert find_surviving_tensors("conv_out", STEPS, {"pooled", "sum[0]"}) == {"pooled"}
    assert find_surviving_tensors("pooled", STEPS, {"pooled", "sum[0]"}) == {"pooled"}


@pytest.mark.parametrize("compiler", [OpenVINOCompiler, TFLiteCompiler])
def test_it_is_refused_where_nothing_is_quantised(
    compiler: type[OpenVINOCompiler] | type[TFLiteCompiler],
) -> None:
    with pytest.raises(ConfigError, match="--keep-float needs --precision int8"):
        compiler(keep_float=("x",))
