"""Models of each framework give the same through ONNX, wherever its exporter can."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchvision_for_cpu import torchvision

from nnpipe.core.errors import NotSupported
from nnpipe.core.onnx_conversion import ONNXConversion
from nnpipe.core.registry import components
from nnpipe.onnxconverters.jax import JAXONNXConversion
from nnpipe.onnxconverters.keras import KerasONNXConversion
from nnpipe.onnxconverters.pytorch import PyTorchONNXConversion
from nnpipe.onnxconverters.sklearn import SklearnONNXConversion
from nnpipe.workflows.verification.onnx_roundtrip import RoundtripRow, convert

CONVERSIONS = (JAXONNXConversion, KerasONNXConversion, PyTorchONNXConversion, SklearnONNXConversion)
# What exporters are known not to do; a version that can will show here.
KNOWN = {
    ("Keras", "cnn"): "Erfc",
    ("Keras", "attention"): "Erfc",
    ("JAX", "cnn"): "Unsupported pooling size",
}
QUICK = {
    "mlp",
    "two-inputs",
    "logistic-regression",
    "random-forest",
    "scaled-svm",
    "forest-regression",
}


def needed(conversion: type[ONNXConversion]) -> None:
    if conversion.missing():
        pytest.skip(f"{conversion.__name__} needs {', '.join(conversion.missing())}")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def converted(
    conversion: type[ONNXConversion], model: str, opset: int, folder: Path
) -> RoundtripRow:
    task = {
        "conversion": conversion.get_dotted_path(),
        "model": model,
        "opset": opset,
        "path": str(folder / "m.onnx"),
    }
    return RoundtripRow(**convert(task))


def cases() -> list[object]:
    # The names are those of models(), which cannot be asked without the frameworks; another test
    # compares the two.
    networks = ("mlp", "cnn", "resnet", "mobilenet-v2", "lstm", "attention", "two-inputs")
    estimators = (
        "logistic-regression decision-tree random-forest gradient-boosting svm nearest-neighbours "
        "mlp scaled-logistic-regression scaled-svm linear-regression forest-regression scaled-svr"
    ).split()
    found: list[object] = []
    for conversion in CONVERSIONS:
        for name in estimators if conversion is SklearnONNXConversion else networks:
            quick = name in QUICK and conversion is not JAXONNXConversion
            # exporting PyTorch's takes seconds
            quick &= name != "two-inputs" or conversion is KerasONNXConversion
            marks = () if quick else (pytest.mark.slow,)
            found.append(
                pytest.param(conversion, name, marks=marks, id=f"{conversion.__name__}-{name}")
            )
    return found


def test_all_conversions_are_found_by_the_registry() -> None:
    assert set(CONVERSIONS) <= set(components(ONNXConversion))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("conversion", "model"), cases())
def test_a_model_gives_the_same_through_onnx(
    conversion: type[ONNXConversion], model: str, tmp_path: Path
) -> None:
    needed(conversion)
    row = converted(conversion, model, 18, tmp_path)
    known = KNOWN.get((conversion.__name__.removesuffix("ONNXConversion"), model))
    if known is not None:
        assert known in row.cause
        return
    assert row.failed == "", row.cause
    assert row.verdict == "same"
    assert row.imported in ("none", "same", "failed")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_outputs_tell_models_apart(conversion: type[ONNXConversion]) -> None:
    """A comparison on outputs that are all alike would say nothing."""
    needed(conversion)
    for case in conversion().models():
        first = conversion().run_model(case.model, case.inputs)
        other = conversion().run_model(
            case.model, {name: array[::-1].copy() for name, array in case.inputs.items()}
        )
        apart = [
            abs(a.astype(float) - b.astype(float)).max() for a, b in zip(first, other, strict=True)
        ]
        assert any(d > 0.01 * abs(a).max() for d, a in zip(apart, first, strict=True)), case.name


@pytest.mark.filterwarnings("ignore")
def test_pytorch_exports_by_tracing_below_18(tmp_path: Path) -> None:
    needed(PyTorchONNXConversion)
    row = converted(PyTorchONNXConversion, "two-inputs", 13, tmp_path)
    assert (row.verdict, row.written) == ("same", 13)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_pytorch_imports_with_onnx2torch(model: str, tmp_path: Path) -> None:
    needed(PyTorchONNXConversion)
    torchvision()
    pytest.importorskip("onnx2torch", reason="onnx2torch is not installed")
    row = converted(PyTorchONNXConversion, model, 13, tmp_path)
    assert (row.verdict, row.imported) == ("same", "same"), row.cause


@pytest.mark.filterwarnings("ignore")
def test_what_an_exporter_cannot_do_is_told(tmp_path: Path) -> None:
    needed(KerasONNXConversion)
    row = converted(KerasONNXConversion, "mlp", 21, tmp_path)
    assert row.failed == "exported"
    assert "Opset 21 is not supported" in row.cause


@pytest.mark.parametrize("conversion", [KerasONNXConversion, SklearnONNXConversion])
def test_where_nothing_imports_onnx_that_is_said(
    conversion: type[ONNXConversion], tmp_path: Path
) -> None:
    with pytest.raises(NotSupported, match="nothing reads ONNX into"):
        conversion().import_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("conversion", [SklearnONNXConversion])
def test_models_are_the_same_every_time(conversion: type[ONNXConversion]) -> None:
    needed(conversion)
    one, two = (list(conversion().models()) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert first.name == second.name
        ours, theirs = (conversion().run_model(case.model, case.inputs) for case in (first, second))
        assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))
