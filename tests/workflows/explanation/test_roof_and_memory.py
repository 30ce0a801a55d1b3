"""The share of the roof and the measured memory in an explanation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from installed import needs

import nnpipe as nn
from nnpipe.analysis.roofline import Ceiling, Ceilings, MemoryLevel
from nnpipe.core.errors import ConfigError
from nnpipe.report.layer_tables import MemoryUse
from nnpipe.scenarios.explain import main


def machine(rate: float) -> Ceilings:
    levels = (MemoryLevel(1 << 20, Ceiling((1e12,), "")), MemoryLevel(None, Ceiling((1e12,), "")))
    return Ceilings(
        "a board", 1, {"float32": Ceiling((rate,), "product")}, levels, {}, "2026-11-24"
    )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a network of 4 million weights, 16 MB, whose values take 8 MB."""
    needs("onnx", "onnx_ir", "onnxruntime")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    path = tmp_path_factory.mktemp("network") / "network.onnx"
    weights = [
        numpy_helper.from_array(np.full((1024, 2048), 1e-3, np.float32), "a"),
        numpy_helper.from_array(np.full((2048, 1024), 1e-3, np.float32), "b"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"], "first"),
        helper.make_node("MatMul", ["y", "b"], ["z"], "second"),
    ]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 1024])] for name in "xz"]
    graph = helper.make_graph(nodes, "g", *sides, initializer=weights)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return path


@pytest.mark.slow
def test_layers_have_their_share_of_the_roof_and_a_doubt_above_it(
    network: Path, tmp_path: Path
) -> None:
    for rate, doubtful in ((1e15, False), (1e3, True)):
        found = nn.explain(network, runtime="ONNXRuntime", runs=3, ceilings=machine(rate))
        shares = [each for each in found.roof if each is not None]
        assert len(shares) == 2
        assert all((each.share > 1.05) == doubtful == bool(each.doubt) for each in shares)
        assert ("doubt: " in found.text()) == doubtful
        assert ("(?)" in found.text()) == doubtful
        assert "of the roof" in found.text()
    found.save_json(tmp_path / "e.json")
    told = json.loads((tmp_path / "e.json").read_text())
    assert told["roof"][0]["limit"] == "arithmetic"
    drawn = {path.name for path in found.save_pictures(tmp_path)}
    assert drawn == {"memory.svg", "breakdown.svg", "graph-time.svg", "roofline.svg"}
    graph = found.charts()["graph-time"]
    assert [box.label for box in graph.boxes] == ["first", "second"]
    assert graph.arrows == ((0, 1),)
    assert max(box.shade for box in graph.boxes) == 1.0
    assert "layers" in (tmp_path / "roofline.svg").read_text()


@pytest.mark.slow
def test_the_command_measures_memory_beside_what_lives_at_once(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nn.RooflineResult(machine(1e15)).save_json(tmp_path / "c.json")
    told = [
        "--runtime",
        "ONNXRuntime",
        "--runs",
        "2",
        "--memory",
        "--ceilings",
        str(tmp_path / "c.json"),
    ]
    assert (
        main([str(network), *told, "--json", str(tmp_path / "e.json"), "--pictures", str(tmp_path)])
        == 0
    )
    said = capsys.readouterr().out
    assert "memory, measured in a process of its own: loading takes" in said
    assert "share of the roof: " in said
    assert "drawn: " in said
    found = json.loads((tmp_path / "e.json").read_text())["memory"]
    assert found["file_bytes"] > 16_000_000
    assert found["loaded_bytes"] > 8_000_000
    assert found["peak_bytes"] is None or found["peak_bytes"] > 0
    assert "measured peak" in (tmp_path / "memory.svg").read_text() or found["peak_bytes"] is None


def test_why_memory_differs_is_told() -> None:
    def told(file: int, loaded: int, peak: int | None) -> str:
        return " ".join(MemoryUse(file, loaded, peak).describe(10_000_000))

    assert "copied into the layout" in told(5_000_000, 9_000_000, 10_000_000)
    assert "mapped file" in told(9_000_000, 5_000_000, 10_000_000)
    assert "an arena keeps more" in told(1, 1, 20_000_000)
    assert "fused operations" in told(1, 1, 2_000_000)
    assert "tells no peak" in told(1, 1, None)


def test_both_need_a_runtime(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="name one"):
        nn.explain(network, memory=True)
    assert main([str(network), "--memory"]) == 2
    assert "need a runtime" in capsys.readouterr().err
