"""A result that its runtime cannot load is a failed compilation, whichever runtime it is for."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.sealed import SealedFile, write_sealed
from nnpipe.frameworks.openvino_models import write_openvino
from nnpipe.frameworks.processors import MACHINE
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.testing.model_files import write_onnx_network, write_tflite_difference
from nnpipe.testing.session import assert_one_line
from nnpipe.workflows.candidates.spec import CandidateSpec

IO = IOSpec((TensorSpec("x", (1, 2), "float32"),), (TensorSpec("y", (1, 2), "float32"),))
Planting = Callable[[Path], Artifact]


def onnx(path: Path) -> Artifact:
    package: Any = pytest.importorskip("onnx")
    made = write_onnx_network(path)
    model = package.load_model(str(path))
    model.graph.node[0].op_type = "Surprise"
    package.save_model(model, str(path))
    return Artifact.create(path, "onnx", made.io)


def tflite(path: Path) -> Artifact:
    pytest.importorskip("ai_edge_litert")
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    made = write_tflite_difference(path)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes()))
    (code,) = model.operatorCodes
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = b"Surprise"
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    return Artifact.create(path, "tflite", made.io)


def openvino(path: Path) -> Artifact:
    xml = path.with_suffix(".xml")
    layer = (
        '<layer id="0" name="x" type="Surprise" version="opset1"><output><port '
        'id="0"/></output></layer>'
    )
    xml.write_text(
        f'<?xml version="1.0"?><net name="m" version="11"><layers>{layer}</layers><edges/></net>'
    )
    xml.with_suffix(".bin").write_bytes(b"")
    write_openvino(path, xml, IO, ("x",))
    return Artifact.create(path, "openvino", IO)


def sealed(format: str, **notes: Any) -> Planting:
    def plant(path: Path) -> Artifact:
        write_sealed(
            path, SealedFile(b"no code" * 20, format, IO, {MACHINE: platform.machine(), **notes})
        )
        return Artifact.create(path, format, IO)

    return plant


def inductor(path: Path) -> Artifact:
    torch: Any = pytest.importorskip("torch")
    return sealed("aoti", torch=torch.__version__.partition("+")[0], vectors="")(path)


@pytest.mark.parametrize(
    ("runtime", "plant"),
    [
        ("ONNXRuntime", onnx),
        ("OpenVINORuntime", onnx),
        ("OpenVINORuntime", openvino),
        ("LiteRTRuntime", tflite),
        ("IREERuntime", sealed("iree", function="f")),
        # these import for seconds
        pytest.param("TVMRuntime", sealed("tvm"), marks=pytest.mark.slow),
        pytest.param("ExecuTorchRuntime", sealed("executorch"), marks=pytest.mark.slow),
        pytest.param("TorchInductorRuntime", inductor, marks=pytest.mark.slow),
    ],
)
def test_a_result_that_its_framework_cannot_load_is_a_failed_compilation(
    tmp_path: Path, runtime: str, plant: Planting
) -> None:
    taker = find(runtime, Runtime)
    if taker.missing():
        pytest.skip(f"{runtime} needs {', '.join(taker.missing())}")
    source, made = tmp_path / "source.onnx", plant(tmp_path / "made.model")
    spec = CandidateSpec("m", ONNXModel(model_path=source), source, runtime=taker(), artifact=made)
    told = rf"made a model from .*source\.onnx that {runtime} refuses: .*made\.model: .* cannot "
    with pytest.raises(CompileError, match=told) as caught:
        spec.open()
    assert_one_line(caught.value)
