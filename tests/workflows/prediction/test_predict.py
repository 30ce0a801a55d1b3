"""Predicting the time of networks, and measuring the kernels for it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from installed import needs
from kernel_tables import kernel, table

import nnpipe as nn
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import ConvolutionPrimitive, PlainPrimitive
from nnpipe.core.tensors import TensorSpec
from nnpipe.scenarios.predict import main
from nnpipe.workflows.prediction.predict import predict_networks


def network(channels: int, *more: Operation) -> Graph:
    """Return a convolution and its activation, and further operations."""
    shape = (1, channels, 10, 10)
    sizes = {
        "x": shape,
        "w": (channels, channels, 3, 3),
        "b": (channels,),
        "y": shape,
        "z": shape,
        "end": shape,
    }
    convolution = ConvolutionPrimitive(
        100, (3, 3), channels, channels, strides=(1, 1), dilations=(1, 1)
    )
    operations = (
        Operation("conv", "Conv", ("x", "w", "b"), ("y",), primitives=(convolution,)),
        Operation(
            "relu", "Relu", ("y",), ("z",), primitives=(PlainPrimitive("elementwise", "relu"),)
        ),
        *more,
    )
    tensors = {name: TensorSpec(name, size, "float32") for name, size in sizes.items()}
    return Graph(operations, tensors, ("x",), ("end" if more else "z",))


def test_networks_are_predicted_by_their_fused_kernels(tmp_path: Path) -> None:
    needs("sklearn")
    unknown = Operation("strange", "Strange", ("z",), ("end",))
    gelu = Operation(
        "gelu", "Gelu", ("z",), ("end",), primitives=(PlainPrimitive("elementwise", "gelu"),)
    )
    found = nn.predict([network(40), network(40, gelu), network(40, unknown)], table())
    plain, outside, without = found.predictions
    assert [each.kernel.operations for each in plain.kernels] == [("conv", "relu")]
    assert plain.ns == pytest.approx(5000 + 1000 + 0.05 * 900 * 40**2, rel=0.15)
    assert plain.interval[0] < plain.ns < plain.interval[1]
    assert plain.outside == {}
    (name,) = outside.outside
    assert name == "gelu (none of its kind was measured)"
    assert 0 < outside.outside_share < 1
    assert without.without_time == 1
    text = found.text()
    assert "network 3: 1 operations are not known here, and have no time" in text
    assert "at least" in text
    found.save_csv(tmp_path / "k.csv")
    with (tmp_path / "k.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["operations"] for row in rows] == [
        "conv relu",
        "conv relu",
        "gelu",
        "conv relu",
        "strange",
    ]
    assert rows[-1]["ns"] == ""
    found.save_json(tmp_path / "k.json")
    assert json.loads((tmp_path / "k.json").read_text())["predictions"][0]["ns"] == plain.ns
    assert "by MACs alone" in nn.PredictResult(table(), (plain,)).text()


def test_files_of_kernels_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    table().save(tmp_path / "k.json")
    assert nn.read_kernels(tmp_path / "k.json") == table()
    for content in ("", "[]", "[" * 100_000, '{"kind": "nnpipe kernels"}', "0" * (17 << 20)):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"bad\.json"):
            nn.read_kernels(tmp_path / "bad.json")
    with pytest.raises(ArtifactError, match=r"none\.json"):
        nn.read_kernels(tmp_path / "none.json")


def test_what_cannot_be_predicted_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, told in (
        ([], "name a model to predict"),
        ([str(tmp_path / "a.onnx")], "nnpipe predict --learn --runtime ONNXRuntime"),
        (["--learn", "--runtime", "LiteRTRuntime"], "runs tflite"),
    ):
        assert main(given) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    with pytest.raises(ConfigError, match="no model was given"):
        nn.predict([], table())
    with pytest.raises(ConfigError, match="kernels"):
        nn.learn_kernels(kernels=2)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["ONNXRuntime", "OpenVINORuntime"])
def test_what_was_learnt_here_predicts_a_network_here(
    runtime: str, tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("sklearn", "onnx_ir", "onnxruntime" if runtime == "ONNXRuntime" else "openvino")
    file, kernels = shared_data / "models" / "mnist-8.onnx", tmp_path / "k.json"
    options = [
        "--runtime",
        runtime,
        "--most-kernels",
        "100",
        "--seconds",
        "5",
        "--kernels",
        str(kernels),
    ]
    assert main(["--learn", *options, str(file)]) == 0
    told = capsys.readouterr().out
    assert "networks whose kernels were left out took" in told
    assert "by MACs alone" in told
    table = nn.read_kernels(kernels)
    assert len(table.kernels) <= 100
    assert table.patterns
    (found,) = nn.predict(file, table).predictions
    times = nn.explain(file, runtime=runtime).times
    assert times is not None
    assert times.plain_ns is not None
    # Few kernels were measured, perhaps on a busy machine: the order must be right.
    assert 0.2 < found.ns / times.plain_ns < 5
    assert np.isfinite(found.interval).all()


def test_errors_of_equal_kernels_do_not_cancel() -> None:
    needs("sklearn")
    found = table(errors=(0.3, -0.3, 0.1, 0.0, -0.1, 0.2, -0.2, 0.05, -0.05, 0.0))
    networks = [[kernel(32)], [kernel(32)] * 40, [kernel(channels) for channels in range(24, 64)]]
    one, equal, different = (
        each.interval[1] / each.ns
        for each in predict_networks(["one", "equal", "different"], networks, found)
    )
    assert equal == pytest.approx(one)
    assert different < one
