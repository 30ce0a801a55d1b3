"""Compilers and runtimes are told how many samples each call has, by whoever measures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import (
    FixesBatch,
    resolve_batch_axes,
    set_batch_size,
    set_batch_sizes,
    with_batch,
)
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.registry import FAMILIES, components
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.workflows.pipeline.file import Pipeline
from nnpipe.workflows.sweep.file import Sweep

FIXING = [cls for family in ("compilers", "runtimes") for cls in components(FAMILIES[family])]
FIXING = [cls for cls in FIXING if issubclass(cls, FixesBatch)]


def test_those_whose_code_depends_on_it_are_fitted() -> None:
    assert {cls.__name__ for cls in FIXING} >= {
        "IREECompiler",
        "TVMCompiler",
        "TorchInductorCompiler",
        "ExecuTorchCompiler",
        "ONNXRuntime",
        "OpenVINORuntime",
        "KerasRuntime",
    }


@pytest.mark.parametrize("cls", FIXING, ids=lambda cls: cls.__name__)
def test_what_the_user_says_stands(cls: type[Component]) -> None:
    assert set_batch_size(cls(), 4).to_json()["fixed_batch"] == 4
    for said, batch in ((2, 2), (0, None)):
        told = set_batch_size(cls.from_json({"fixed_batch": said}), 4)
        assert isinstance(told, FixesBatch)
        assert (told.fixed_batch, told.batch) == (said, batch)


def test_others_stay_as_they_are() -> None:
    runtime = LiteRTRuntime()
    assert set_batch_size(runtime, 4) is runtime
    assert set_batch_sizes([runtime, ONNXRuntime()], 4) == (runtime, ONNXRuntime(fixed_batch=4))


def test_only_first_axes_that_are_free_are_fixed() -> None:
    io = IOSpec(
        (TensorSpec("a", (None, None, 3), "float32"), TensorSpec("b", (5,), "int64")),
        (TensorSpec("c", (), "float32"),),
    )
    assert [spec.shape for spec in with_batch(io, 2)] == [(2, None, 3), (5,), ()]
    assert with_batch(io, None) is io
    assert [spec.shape for spec in resolve_batch_axes(io, with_batch(io, 2))] == [
        (2, None, 3),
        (5,),
        (),
    ]


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    """A model, which pipelines and sweeps look at when they are read."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    return str(write_onnx_network(tmp_path / "any.onnx").path)


@pytest.mark.parametrize(
    ("more", "size"),
    [
        ({}, 1),
        ({"measure": {"inference_batch_size": 8}}, 8),
        ({"load": {"scenario": "multi-stream", "samples_per_query": 4}}, 4),
    ],
    ids=["one by one", "in batches", "under load"],
)
def test_a_pipeline_tells_its_candidates(
    more: dict[str, object], size: int, model_file: str
) -> None:
    pipeline = {
        "dataset": {"class": "DigitsDataset"},
        "model": {"class": "ONNXModel", "path": model_file},
        "candidates": [{"title": "one", "runtime": {"class": "ONNXRuntime"}}],
    }
    candidate = Pipeline.from_settings({**pipeline, **more}).models[0].candidates[0]
    assert candidate.runtime == ONNXRuntime(fixed_batch=size)


def test_a_sweep_makes_a_model_for_each_size(model_file: str) -> None:
    sweep = Sweep.from_settings(
        {
            "dataset": {"class": "DigitsDataset"},
            "models": [{"class": "ONNXModel", "path": model_file, "title": "m"}],
            "runtimes": [{"class": "ONNXRuntime"}],
            "batch_sizes": [1, 8],
            "as_trained": False,
            "objectives": ["latency_median", "size"],
            "choose": "latency_median",
        }
    )
    assert {point.title: point.runtime for point in sweep.points} == {
        "m · ONNXRuntime": ONNXRuntime(fixed_batch=1),
        "m · ONNXRuntime · batch 8": ONNXRuntime(fixed_batch=8),
    }
    assert len({point.key("w", sweep.dataset, 1, sweep.verify) for point in sweep.points}) == 2


@pytest.fixture
def detector(tmp_path: Path) -> Artifact:
    """Two rows a sample in, and as many rows out as are positive: a first axis that is not the
    batch.
    """
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0),
        helper.make_node("Greater", ["sums", "zero"], ["positive"]),
        helper.make_node("Compress", ["x", "positive"], ["found"], axis=0),
    ]
    constants = [
        helper.make_tensor("axes", kind.INT64, [1], [1]),
        helper.make_tensor("zero", kind.FLOAT, [], [0.0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind.FLOAT, ["n", 3])],
        [
            helper.make_tensor_value_info("sums", kind.FLOAT, ["n"]),
            helper.make_tensor_value_info("found", kind.FLOAT, ["boxes", 3]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    return Artifact.create(tmp_path / "model.onnx", "onnx", read_onnx(tmp_path / "model.onnx").io())


@pytest.mark.parametrize(
    ("runtime", "package"),
    [(ONNXRuntime(fixed_batch=2), "onnxruntime"), (OpenVINORuntime(fixed_batch=2), "openvino")],
    ids=["onnxruntime", "openvino"],
)
def test_a_runtime_fixes_what_follows_from_the_batch_alone(
    runtime: ONNXRuntime | OpenVINORuntime, package: str, detector: Artifact
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    given = np.array([[1, 2, 3], [-4, -5, -6]], np.float32)
    with runtime.load(detector) as session:
        assert [spec.shape for spec in session.io] == [(2, 3), (2,), (None, 3)]
        found = session.infer({"x": given})
        np.testing.assert_allclose(found["sums"], [6, -15])
        np.testing.assert_allclose(found["found"], given[:1])
        with pytest.raises(SpecMismatch, match=r"'x' has shape \(3, 3\), expected"):
            session.infer({"x": np.ones((3, 3), np.float32)})


def test_a_compiler_fixes_what_follows_from_the_batch_alone(detector: Artifact) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from nnpipe.compilers._onnx import fix_batch

    model = onnx.load_model(str(detector.path))
    fix_batch(model, detector.io, 2)
    axes = {
        value.name: [axis.dim_value or None for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert axes == {"x": [2, 3], "sums": [2], "found": [None, 3]}


def test_a_batch_that_a_model_cannot_have_is_refused_with_advice(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", kind.FLOAT, [3, 2])],
        [helper.make_tensor("c", kind.FLOAT, [3, 2], [0.0] * 6)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "m.onnx"))
    artifact = Artifact.create(tmp_path / "m.onnx", "onnx", read_onnx(tmp_path / "m.onnx").io())
    with pytest.raises(
        ArtifactError, match=r"m\.onnx: OpenVINO cannot make it for 2 samples .*--fixed-batch 0"
    ):
        OpenVINORuntime(fixed_batch=2).load(artifact)
