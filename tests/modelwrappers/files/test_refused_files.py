"""Files that frameworks refuse are answered with one line that names the file and the cause."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.__main__ import main
from nnpipe.core.errors import ArtifactError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.testing.model_files import write_tflite_difference

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Try to measure a file; give the one line that comes of it."""

    def run(wrapper: str, path: Path, runtime: str = "") -> str:
        named = (
            [wrapper, "none", runtime, "DigitsDataset"] if runtime else [wrapper, "DigitsDataset"]
        )
        scenario = "inference_tester" if runtime else "inference_performance"
        status = main(
            [
                scenario,
                *named,
                str(tmp_path / "out.json"),
                f"--model-path={path}",
                "--verbosity=error",
            ]
        )
        lines = capsys.readouterr().err.splitlines()
        assert status == 2, lines
        assert len(lines) == 1, lines
        assert str(path) in lines[0]
        assert not (tmp_path / "out.json").exists()
        return lines[0]

    return run


class Payload:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "owned")


WRAPPERS = {
    "ONNXModel": ("onnxruntime", "model.onnx"),
    "TFLiteModel": ("ai_edge_litert", "model.tflite"),
    "KerasModel": ("tensorflow", "model.h5"),
    "TorchExportModel": ("torch", "model.pt2"),
    "SklearnModel": ("skops", "model.skops"),
    "PyTorchCIFARResNet": ("torch", "model.th"),
}
# Starting TensorFlow or PyTorch in a process of its own takes seconds.
QUICK = ("ONNXModel", "TFLiteModel", "SklearnModel")
EACH = [
    pytest.param(name, *values, marks=[] if name in QUICK else [pytest.mark.slow])
    for name, values in WRAPPERS.items()
]


@pytest.mark.parametrize(("wrapper", "needs", "name"), EACH)
@pytest.mark.parametrize("content", ["empty", "missing", "text", "pickle"])
def test_what_is_no_model_is_refused(
    tmp_path: Path, wrapper: str, needs: str, name: str, content: str
) -> None:
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    path, owned = tmp_path / name, tmp_path / "owned"
    if content != "missing":
        written = {
            "empty": b"",
            "text": b"<html>404 Not Found</html>\n",
            "pickle": pickle.dumps(Payload(owned)),
        }
        path.write_bytes(written[content])
    cls = find(wrapper, ModelWrapper)
    made = cls.from_json(
        {} if wrapper == "PyTorchCIFARResNet" else {"model_path": str(path)}
    ).open()
    with pytest.raises(ArtifactError) as caught:
        made.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not owned.exists()


@pytest.mark.parametrize(("wrapper", "needs", "name"), EACH)
def test_a_truncated_file_is_refused(
    shared_data: Path, tmp_path: Path, wrapper: str, needs: str, name: str
) -> None:
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    published = {
        "ONNXModel": "mnist-8.onnx",
        "TFLiteModel": "mlperf_tiny_ic/pretrainedResnet.tflite",
        "KerasModel": "mlperf_tiny_ic/pretrainedResnet.h5",
        "PyTorchCIFARResNet": "torch_resnet/resnet20-12fca82f.th",
    }
    if wrapper not in published:
        pytest.skip(
            f"no file for {wrapper} was published; its contract suite truncates one of its own"
        )
    data = (shared_data / "models" / published[wrapper]).read_bytes()
    for part in (100, len(data) // 2, len(data) - 100):
        path = tmp_path / f"{part}{name}"
        path.write_bytes(data[:part])
        made = find(wrapper, ModelWrapper).from_json(
            {} if wrapper == "PyTorchCIFARResNet" else {"model_path": str(path)}
        )
        with pytest.raises(ArtifactError) as caught:
            opened(made, path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def opened(wrapper: ModelWrapper, path: Path) -> Any:
    return wrapper.open(path).session()


# -- ONNX
# -------------------------------------------------------------------------------------------


def write_onnx(path: Path, kind: str, domain: str = "", **attributes: Any) -> Path:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", float32, [None, 64])],
        [helper.make_tensor_value_info("y", float32, [None, 10])],
    )
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )
    return path


def test_an_operation_of_a_strangers_own_is_named_in_onnx(tmp_path: Path, refused: Refused) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = write_onnx(tmp_path / "custom.onnx", "Frobnicate", "com.acme")
    assert "Frobnicate" in refused("ONNXModel", path)
    assert "Frobnicate" in refused("ONNXModel", path, "ONNXRuntime")


def test_an_operation_that_is_not_of_its_opset_is_named(tmp_path: Path, refused: Refused) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    assert "Scan9000" in refused("ONNXModel", write_onnx(tmp_path / "unknown.onnx", "Scan9000"))


def test_weights_that_lie_elsewhere_are_refused(tmp_path: Path, refused: Refused) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((64, 10), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../../etc/passwd")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 10])],
        [weight],
    )
    path = tmp_path / "outside.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        ).SerializeToString()
    )
    assert "outside its own folder" in refused("ONNXModel", path)
    assert "outside its own folder" in refused("ONNXModel", path, "ONNXRuntime")


# -- TensorFlow Lite
# ----------------------------------------------------------------------------------


def changed_tflite(path: Path, change: Callable[[Any, Any], None]) -> Path:
    """Write a small TensorFlow Lite file of one input and change it."""
    flatbuffers = pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    schema = pytest.importorskip(
        "ai_edge_litert.schema_py_generated", reason="LiteRT is not installed"
    )
    write_tflite_difference(path, dtype="int8", named=False)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes()))
    graph = model.subgraphs[0]
    graph.inputs, graph.operators[0].inputs = [0], [0, 0]
    for tensor in graph.tensors:
        tensor.shape, tensor.shapeSignature = [1, 64], [-1, 64]
    graph.tensors[2].shape, graph.tensors[2].shapeSignature = [1, 10], [-1, 10]
    graph.tensors[2].quantization.zeroPoint = [1]
    change(schema, model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    path.with_name(path.name + ".json").unlink()
    return path


def test_a_custom_operation_is_named_in_tensorflow_lite(tmp_path: Path, refused: Refused) -> None:
    def change(schema: Any, model: Any) -> None:
        code = model.operatorCodes[0]
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
        code.customCode = "AcmeFrobnicate"
        model.subgraphs[0].operators[0].builtinOptionsType = 0
        model.subgraphs[0].operators[0].builtinOptions = None

    path = changed_tflite(tmp_path / "custom.tflite", change)
    assert "AcmeFrobnicate" in refused("TFLiteModel", path)
    assert "AcmeFrobnicate" in refused("TFLiteModel", path, "LiteRTRuntime")


@pytest.mark.parametrize(("axis", "scales"), [(7, 64), (-3, 64), (1, 3), (1, 64)])
def test_a_quantised_dimension_that_is_not_there_is_refused(
    tmp_path: Path, refused: Refused, axis: int, scales: int
) -> None:
    def change(schema: Any, model: Any) -> None:
        quantization = model.subgraphs[0].tensors[0].quantization
        quantization.scale, quantization.zeroPoint = [0.5] * scales, [0] * scales
        quantization.quantizedDimension = axis

    path = changed_tflite(tmp_path / "axis.tflite", change)
    for runtime in ("", "LiteRTRuntime") if axis == 7 else ("",):  # both read by the same function
        line = refused("TFLiteModel", path, runtime)
        assert "quantised per channel" in line
        assert "'t_first'" in line


def test_a_weight_whose_quantised_dimension_is_not_there_is_refused(
    tmp_path: Path, refused: Refused
) -> None:
    def change(schema: Any, model: Any) -> None:
        graph, weight, buffer = model.subgraphs[0], model.subgraphs[0].tensors[1], schema.BufferT()
        buffer.data = np.ones(64, np.uint8)
        weight.shape, weight.shapeSignature, weight.buffer = [1, 64], None, 1
        weight.quantization.scale, weight.quantization.zeroPoint = [0.5] * 3, [0] * 3
        weight.quantization.quantizedDimension = 5
        model.buffers.append(buffer)
        graph.operators[0].inputs = [0, 1]

    path = changed_tflite(tmp_path / "weight.tflite", change)
    for runtime in ("", "LiteRTRuntime"):
        assert "quantized_dimension" in refused("TFLiteModel", path, runtime)


# -- Keras
# ----------------------------------------------------------------------------------------------


def write_h5(path: Path, config: dict[str, Any] | None) -> Path:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([], "S1")
        if config is not None:
            file.attrs["model_config"] = json.dumps(config)
    return path


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    first = {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, 8, 8, 1], "name": "image"},
    }
    return {"class_name": "Sequential", "config": {"name": "s", "layers": [first, *layers]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "cause"),
    [
        (
            sequential(
                {
                    "class_name": "DepthwiseConv2D",
                    "config": {"kernel_size": [3, 3], "groups": 1, "name": "d"},
                }
            ),
            "DepthwiseConv2D.*groups",
        ),
        (
            sequential(
                {"class_name": "Dense", "config": {"units": 10, "init": "uniform", "name": "d"}}
            ),
            "Dense.*init",
        ),
        (
            sequential({"class_name": "AcmeLayer", "config": {"name": "a"}}),
            "'AcmeLayer' is no layer of Keras.*ONNX",
        ),
        (
            sequential(
                {
                    "class_name": "Lambda",
                    "config": {"name": "l", "function": ["4wEAAAAA", None, None]},
                }
            ),
            "a Lambda layer .*would run code",
        ),
        (None, "holds weights and no structure"),
    ],
)
def test_keras_files_of_old_or_of_strangers_are_answered_with_the_layer(
    tmp_path: Path, config: dict[str, Any] | None, cause: str
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from nnpipe.modelwrappers.files.keras import KerasModel

    path = write_h5(tmp_path / "old.h5", config)
    with pytest.raises(ArtifactError, match=cause) as caught:
        KerasModel(model_path=path).open().load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


@pytest.mark.slow
def test_what_keras_cannot_read_of_its_own_past_runs_with_a_remark_that_names_its_version(
    shared_data: Path,
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from nnpipe.modelwrappers.files.keras import KerasModel

    folder = shared_data / "keras_files"
    files = sorted(folder.glob("*.h5"))
    assert len(files) == 23
    for path in files:
        model = KerasModel(model_path=path)
        assert [len(model.io.inputs), len(model.io.outputs)] == [1, 1]
        (remark,) = model.remarks
        assert "own reader" in remark
        assert "\n" not in remark
    (alone,) = folder.glob("*.hdf5")
    with pytest.raises(ArtifactError, match="holds weights and no structure"):
        _ = KerasModel(model_path=alone).io


# -- PyTorch
# ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weights.pt", "weights.th"])
def test_a_file_of_torch_save_with_code_in_it_is_not_run(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet

    path, owned = tmp_path / name, tmp_path / "owned"
    torch.save({"state_dict": Payload(owned)}, path)
    with pytest.raises(
        ArtifactError, match=r"asks for .*to be (run|called)|damaged, or not what torch.save writes"
    ) as caught:
        PyTorchCIFARResNet().open().load(path)
    assert str(path) in str(caught.value)
    assert not owned.exists()
