"""The examples of the public calls run, and those of their results go on from there."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.datasets.arrays import write_arrays
from nnpipe.measuring.series import Series
from nnpipe.testing.model_files import write_onnx_classifier

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LABELS = np.arange(60) % 4
IMAGES = np.random.default_rng(0).normal(LABELS[:, None], 0.1, (60, 6)).astype(np.float32)

PLUGIN = """
import numpy as np

def load_test_data(path):
    return np.load(path), 1

def process_model_output(model_input, model_output):
    np.savetxt("output/found.csv", model_output.argmax(axis=1), fmt="%d", header="class", comments="")
"""
PIPELINE = """
output: out
dataset: {class: ArraysDataset, arguments: {dataset_root: data}}
model: {class: ONNXModel, arguments: {model_path: model.onnx, scale: 1}}
candidates: [{title: as it is}, {title: again, runtime: ONNXRuntime}]
"""
SWEEP = """
output: swept
dataset: {class: ArraysDataset, arguments: {dataset_root: data}}
models: [{title: m, class: ONNXModel, arguments: {model_path: model.onnx, scale: 1}}]
runtimes: [ONNXRuntime]
as_trained: false
constraints: [size <= 1 MB]
choose: latency_median
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay the files that the examples name into the current folder."""
    monkeypatch.chdir(tmp_path)
    write_onnx_classifier(Path("model.onnx"), IMAGES, LABELS)
    write_arrays(Path("data"), {"image": IMAGES}, LABELS)
    np.save("scans.npy", IMAGES)
    for name, text in (
        ("scans_plugin.py", PLUGIN),
        ("digits.yaml", PIPELINE),
        ("sweep.yaml", SWEEP),
    ):
        Path(name).write_text(text, "utf-8")


def write_runs() -> None:
    """Write two results of one model that is as fast as before."""
    for number, path in enumerate(("baseline.json", "new.json")):
        latency = (1e6 * np.exp(np.random.default_rng(number).normal(0, 0.05, 2000))).astype(
            np.int64
        )
        columns = {
            "start_ns": np.cumsum(latency) - latency,
            "latency_ns": latency,
            "samples": np.ones(2000, np.int64),
        }
        nn.Run(
            "digits",
            (),
            components={},
            frameworks={},
            host={"cpu": {"model": "Abacus"}},
            timing={"batch_size": 1},
            series={"inference": Series(columns)},
        ).write(path)


def write_vectors() -> None:
    """Write a test vector of an addition, as ONNX publishes them."""
    from onnx import TensorProto, helper, numpy_helper

    one, two = np.arange(6, dtype=np.float32), np.full(6, 2.5, np.float32)
    a, b, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in "abz")
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["z"])], "g", [a, b], [z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    place = Path("vectors", "test_add", "test_data_set_0")
    place.mkdir(parents=True)
    onnx.save_model(model, str(place.parent / "model.onnx"))
    for name, array in (("input_0", one), ("input_1", two), ("output_0", one + two)):
        (place / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


SLOW = {
    "compare",
    "compare_models",
    "compare_pipeline",
    "learn_kernels",
    "measure",
    "mix",
    "onnx_support",
    "predict",
    "read_ceilings",
    "read_kernels",
    "roofline",
    "run_pipeline",
    "sweep",
    "verify",
}
"""What other tests of the quick run call already, and takes long."""
CALLS = [
    ("benchmark",),
    ("compare", "ComparisonResult", "Choice"),
    ("compare_models",),
    ("compare_pipeline",),
    ("compile",),
    ("conformance", "ConformanceResult"),
    ("explain", "ExplainResult"),
    ("gate", "GateResult"),
    ("measure", "Measurement"),
    ("mix", "MixResult"),
    ("learn_kernels", "KernelTable"),
    ("onnx_support", "ONNXSupport"),
    ("predict", "PredictResult"),
    ("read_kernels",),
    ("read_ceilings",),
    ("read_sweep",),
    ("roofline", "RooflineResult"),
    ("run_pipeline", "PipelineResult"),
    ("sweep", "SweepResult"),
    ("testrun", "TestrunResult"),
    ("verify", "VerifyResult"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(each, id=each[0], marks=[pytest.mark.slow] if each[0] in SLOW else [])
        for each in CALLS
    ],
)
def test_the_example_of_a_call_and_that_of_its_result_run(names: tuple[str, ...]) -> None:
    if names[0] in ("gate", "conformance", "onnx_support"):
        {"gate": write_runs, "conformance": write_vectors, "onnx_support": _sklearn}[names[0]]()
    known: dict[str, Any] = {"images": IMAGES, "labels": LABELS}
    for name in names:
        thing = getattr(nn, name)
        globs = {**vars(sys.modules[thing.__module__]), **known}
        (example,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs=globs)
        told: list[str] = []
        failed, tried = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(
            example, out=told.append, clear_globs=False
        )
        assert tried
        assert not failed, "".join(told)
        known |= {
            each: example.globs[each] for each in ("found", "result") if each in example.globs
        }


def _sklearn() -> None:
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
