"""Made-up pictures with boxes, and a small detector that goes the whole way with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed
from synthetic_contract import SyntheticContract

from nnpipe.core.artifact import Artifact
from nnpipe.datasets import SyntheticDetectionDataset
from nnpipe.measuring.run import Run
from nnpipe.scenarios import inference_performance, inference_tester
from nnpipe.tasks.detection.task import Detection

onnx: Any = ImportedWhenUsed("onnx")


class TestSyntheticDetection(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticDetectionDataset(num_samples=60, image_size=(32, 40), data_seed=1)

    def perfect(self, dataset, truth):
        return {
            "boxes": truth["boxes"],
            "class": truth["class"],
            "scores": np.ones(truth["class"].shape),
        }


def write_detector(path: Path, scale: float | None) -> None:
    """Write a network that calls each window of 12 pixels as red as it is red, and as green as it
    is green.

    With a scale, its only output is quantised by it, boxes and scores together.
    """
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    cells = np.stack(np.meshgrid(np.arange(14), np.arange(14)), axis=-1).reshape(-1, 2)
    boxes = (
        np.concatenate([4 * cells + 6, np.full((196, 2), 14)], axis=1).T[None].astype(np.float32)
    )
    colours = np.array([[1, -0.5, -0.5], [-0.5, 1, -0.5]], np.float32)[:, :, None, None]
    constants = {
        "boxes": boxes,
        "colours": colours,
        "flat": np.array([0, 2, -1]),
        "scale": np.float32(scale or 1),
        "zero": np.uint8(0),
    }
    nodes = [
        helper.make_node("Conv", ["image", "colours"], ["colour"]),
        helper.make_node(
            "AveragePool", ["colour"], ["window"], kernel_shape=[12, 12], strides=[4, 4]
        ),
        helper.make_node("Relu", ["window"], ["positive"]),
        helper.make_node("Reshape", ["positive", "flat"], ["scores"]),
        helper.make_node(
            "Concat", ["boxes", "scores"], ["out" if scale is None else "real"], axis=1
        ),
    ]
    if scale is not None:
        nodes.append(helper.make_node("QuantizeLinear", ["real", "scale", "zero"], ["stored"]))
        nodes.append(helper.make_node("DequantizeLinear", ["stored", "scale", "zero"], ["out"]))
    graph = helper.make_graph(
        nodes,
        "squares",
        [helper.make_tensor_value_info("image", 1, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("out", 1, [1, 6, 196])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


DATA = ["--num-samples", "60", "--test-fraction", "0.5"]
TOLD = [
    "--scale",
    "255",
    "--decoder",
    "YOLODecoder",
    "--decoder-options",
    "score_threshold=0.2",
    "overlap=0.1",
]


@pytest.mark.slow
def test_a_detector_goes_the_whole_way_by_command_line(tmp_path: Path) -> None:
    write_detector(tmp_path / "squares.onnx", None)
    result, compiled, again = (
        str(tmp_path / name) for name in ("made.json", "made.onnx", "again.json")
    )
    given = [
        "--model-path",
        str(tmp_path / "squares.onnx"),
        "--compiled-model-path",
        compiled,
        *DATA,
        *TOLD,
    ]
    command = [
        "ONNXModel",
        "ONNXFloat16",
        "ONNXRuntime",
        "SyntheticDetectionDataset",
        result,
        *given,
    ]
    assert inference_tester.main(command) == 0
    decoder = Artifact.read(compiled).meaning.decoder
    assert decoder["arguments"]["score_threshold"] == 0.2
    # The compiled file says how its outputs are read.
    command = ["ONNXModel", "SyntheticDetectionDataset", again, "--model-path", compiled, *DATA]
    assert inference_performance.main(command) == 0
    first, second = (Run.read(path).evaluation for path in (result, again))
    ap50 = Detection().metric("ap50")
    assert ap50.compute(first) > 0.3
    assert ap50.compute(second) == pytest.approx(ap50.compute(first), abs=0.02)
    assert second.settings["decoder"] == decoder


@pytest.mark.slow
def test_a_detector_whose_boxes_and_scores_share_a_scale_is_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_detector(tmp_path / "squares.onnx", 64 / 255)
    command = ["ONNXModel", "SyntheticDetectionDataset", str(tmp_path / "out.json"), *DATA, *TOLD]
    assert (
        inference_performance.main([*command, "--model-path", str(tmp_path / "squares.onnx")]) == 0
    )
    assert "doubt: collapsed" in capsys.readouterr().out
