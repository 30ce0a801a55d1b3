"""Planning finds a way through the formats, or says why there is none."""

from __future__ import annotations

import pytest

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan, find_bridge, plan
from nnpipe.core.runtime import Runtime


class Model(ModelWrapper):
    exports = ("keras", "onnx")


class Stuck(ModelWrapper):
    pass


class ToTFLite(ModelCompiler):
    accepts, produces = ("keras",), "tflite"


class Quantise(ModelCompiler):
    accepts, produces = ("onnx",), "onnx"


class ToTVM(ModelCompiler):
    accepts, produces = ("onnx", "tflite"), "so"


class OnnxRuntime(Runtime):
    accepts = ("onnx",)


class LiteRT(Runtime):
    accepts = ("tflite",)


class TVM(Runtime):
    accepts = ("so",)


KNOWN = (ToTFLite, Quantise, ToTVM)


@pytest.mark.parametrize(
    ("compilers", "runtime", "expected"),
    [
        ((), OnnxRuntime, Plan("onnx", ())),
        ((ToTFLite,), LiteRT, Plan("keras", ("tflite",))),
        ((Quantise, Quantise), OnnxRuntime, Plan("onnx", ("onnx", "onnx"))),
        ((Quantise, ToTVM), TVM, Plan("onnx", ("onnx", "so"))),
        ((ToTFLite, ToTVM), TVM, Plan("keras", ("tflite", "so"))),
        ((ToTFLite,), None, Plan("keras", ("tflite",))),
    ],
)
def test_a_chain_that_fits_is_found(compilers, runtime, expected) -> None:  # type: ignore[no-untyped-def]
    assert plan(Model, compilers, runtime) == expected


def test_the_export_asked_for_is_kept() -> None:
    assert plan(Model, (ToTVM,), TVM, export="onnx").export == "onnx"


def test_a_gap_names_both_sides_and_the_bridge() -> None:
    with pytest.raises(
        ConfigError,
        match=r"LiteRT takes tflite, but Model gives keras; put .*\.ToTFLite between them",
    ):
        plan(Model, (), LiteRT, known=KNOWN)


def test_a_bridge_from_any_of_the_exports_is_named() -> None:
    class Both(ModelWrapper):
        exports = ("onnx", "keras")

    with pytest.raises(
        ConfigError,
        match=r"LiteRT takes tflite, but Both gives keras; put .*\.ToTFLite between them",
    ):
        plan(Both, (), LiteRT, known=KNOWN)
    with pytest.raises(
        ConfigError, match="Both gives onnx or keras; no compiler here leads from onnx or keras to"
    ):
        plan(Both, (), LiteRT, known=(Quantise,))


def test_a_longer_bridge_is_named_in_order() -> None:
    assert find_bridge("keras", ("so",), KNOWN) == (ToTFLite, ToTVM)


def test_a_gap_that_nothing_bridges_says_so() -> None:
    with pytest.raises(ConfigError, match="no compiler here leads from tflite to onnx"):
        plan(Model, (ToTFLite,), OnnxRuntime, known=KNOWN)


def test_the_furthest_gap_is_reported() -> None:
    with pytest.raises(ConfigError, match="LiteRT takes tflite, but Quantise gives onnx"):
        plan(Model, (Quantise,), LiteRT, known=KNOWN)


def test_an_export_that_the_model_lacks_is_named() -> None:
    with pytest.raises(
        ConfigError, match="Model cannot be exported as pb; it can as keras or onnx"
    ):
        plan(Model, (), OnnxRuntime, export="pb")
    with pytest.raises(ConfigError, match="Stuck cannot be exported in any format"):
        plan(Stuck, (), OnnxRuntime)
