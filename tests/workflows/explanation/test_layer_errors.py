"""The layer that loses the accuracy is named, and a sound conversion is not accused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.scenarios.explain import main
from nnpipe.workflows.explanation.explain import explain

pytestmark = pytest.mark.slow
WIDTH, DEPTH = 16, 4


def write_network(path: Path, rng: np.random.Generator, large_after: int | None) -> None:
    """Write a small network of convolutions; three channels of one of them are 300 times as
    large, and made up for.
    """
    import onnx
    from onnx import helper

    nodes: list[Any] = []
    weights = []
    channels, name, undo = 3, "x", None
    for number in range(DEPTH):
        kernel = rng.normal(0, np.sqrt(2 / (9 * channels)), (WIDTH, channels, 3, 3))
        if undo is not None:
            kernel[:, undo] /= 300
            undo = None
        if number == large_after:
            undo = rng.choice(WIDTH, 3, replace=False)
            kernel[undo] *= 300
        weights.append(onnx.numpy_helper.from_array(kernel.astype(np.float32), f"w{number}"))
        nodes.append(
            helper.make_node(
                "Conv", [name, f"w{number}"], [f"c{number}"], name=f"conv{number}", pads=[1] * 4
            )
        )
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], name=f"relu{number}"))
        channels, name = WIDTH, f"r{number}"
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"], name="pool"))
    real = onnx.TensorProto.FLOAT
    sides = [
        helper.make_tensor_value_info("x", real, ["n", 3, 12, 12]),
        helper.make_tensor_value_info("y", real, ["n", WIDTH, 1, 1]),
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(path),
    )


def quantised(path: Path, to: Path, samples: np.ndarray) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.waiting = iter([{"x": sample[None]} for sample in samples])

        def get_next(self) -> Any:
            return next(self.waiting, None)

    quantize_static(
        str(path),
        str(to),
        Samples(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


@pytest.mark.parametrize("large_after", [None, 0, 2])
def test_the_layer_with_lost_channels_is_named(tmp_path: Path, large_after: int | None) -> None:
    needs("onnx", "onnx_ir", "onnxruntime")
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(12, 3, 12, 12)).astype(np.float32)
    write_network(tmp_path / "float.onnx", rng, large_after)
    quantised(tmp_path / "float.onnx", tmp_path / "int8.onnx", samples)
    found = explain(
        tmp_path / "int8.onnx", against=tmp_path / "float.onnx", data=samples, samples=12
    )
    assert found.errors is not None
    if large_after is None:
        assert found.faults == ()
        return
    assert f"relu{large_after}" in found.faults[0] or f"conv{large_after}" in found.faults[0]
    worst = min(found.errors.errors, key=lambda each: each.median)
    assert worst.median < 15 < 25 < worst.whole, "the whole tensor looks sound"
    found.save_csv(tmp_path / "errors.csv")
    rows = list(csv.DictReader((tmp_path / "errors.csv").read_text("utf-8").splitlines()))
    assert (
        min(float(row["error_median_db"]) for row in rows if row["error_median_db"]) == worst.median
    )
    assert "error (dB)" in found.text()


def test_a_source_needs_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="give data"):
        explain(tmp_path / "a.onnx", against=tmp_path / "b.onnx")
    assert main(["a.onnx", "--against", "b.onnx"]) == 2
    assert "go together" in capsys.readouterr().err
