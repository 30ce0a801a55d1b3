"""Exported PyTorch programs as models."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS

from nnpipe.compilers.executorch import ExecuTorchCompiler
from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.errors import ArtifactError, ConfigError, ConversionError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.frameworks import torch_onnx
from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN
from nnpipe.modelwrappers.files import torch_export as module
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.torch_export import TorchExportModel
from nnpipe.runtimes.executorch import ExecuTorchRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.modelwrapper import ModelWrapperContract

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with a free batch axis."""
    path = tmp_path_factory.mktemp("source") / "digits.pt2"
    PyTorchDigitsCNN().open().export(path, "torch-export")
    return path


class TestTorchExportModel(ModelWrapperContract):
    repeats = RULES_OF_SESSIONS  # which tests/runtimes/test_pytorch.py runs
    rtol, atol = 1e-6, 1e-6

    @pytest.fixture
    def wrapper(self, digits: Path) -> ModelWrapper:
        return TorchExportModel(
            model_path=digits, scale=16.0, layout="nchw", class_count=10, num_threads=2
        )


def test_a_file_that_a_stranger_saved_runs_by_the_names_in_its_graph(tmp_path: Path) -> None:
    class Difference(torch.nn.Module):  # type: ignore[misc]
        def forward(self, first: object, second: object) -> object:
            return torch.relu(first) - second  # type: ignore[operator]

    path = tmp_path / "difference.pt2"
    example = (torch.zeros(2, 3), torch.zeros(2, 3))
    batch_axis = torch.export.Dim("batch")
    program = torch.export.export(
        Difference(), example, dynamic_shapes=({0: batch_axis}, {0: batch_axis})
    )
    torch.export.save(program, path)
    model = TorchExportModel(model_path=path).open()
    assert [spec.name for spec in model.io.inputs] == ["first", "second"]
    generator = np.random.default_rng(0)
    batch: Batch = {
        name: generator.standard_normal((5, 3)).astype(np.float32) for name in ("second", "first")
    }
    with model.session() as session:
        (result,) = session.infer(batch).values()
    np.testing.assert_array_equal(result, np.maximum(batch["first"], 0) - batch["second"])


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_a_large_program_is_written_as_onnx_weight_by_weight(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """A program that fits into one ONNX file becomes one; a larger one gets its weights beside
    it.
    """
    from nnpipe.formats.onnx import read_onnx

    needs("onnx_ir", "onnxscript", "onnxruntime")
    monkeypatch.setattr(torch_onnx, "_SMALL", 0)
    if not whole:
        monkeypatch.setattr(module, "LARGEST", digits.stat().st_size - 1)
    wrapper = TorchExportModel(model_path=digits)
    made = wrapper.open().export(tmp_path / "large.onnx", "onnx")
    beside = [] if whole else ["large.onnx.0.weights"]
    assert list(read_onnx(made.path).external) == beside
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "large.onnx",
        *beside,
        "large.onnx.json",
    ]
    batch = generate_random_batch(wrapper.io, 2)
    with wrapper.open().session() as source, ONNXRuntime().load(made) as session:
        for name, expected in source.infer(batch).items():
            np.testing.assert_allclose(session.infer(batch)[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_attention_with_a_learnt_mask_whose_result_is_viewed_is_written_as_onnx(
    tmp_path: Path,
) -> None:
    """With gradients, PyTorch computes attention with such a mask in another way, and its result
    cannot be viewed.
    """
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    needs("onnx_ir", "onnxscript", "onnxruntime")

    class Heads(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Embedding(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.view(x.shape[0], -1, 2, 4).transpose(1, 2)
            mask = self.bias(torch.arange(3)[:, None] - torch.arange(3).clamp(max=0)).permute(
                2, 0, 1
            )[None]
            joined = torch.nn.functional.scaled_dot_product_attention(
                heads, heads, heads, mask
            ).transpose(1, 2)
            return joined.contiguous().view(x.shape[0], -1, 8)

    path = tmp_path / "heads.pt2"
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        program = torch.export.export(Heads(), (torch.ones(2, 3, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    wrapper = TorchExportModel(model_path=path)
    made = wrapper.open().export(tmp_path / "heads.onnx", "onnx")
    inputs = generate_random_batch(wrapper.io, 2)
    with wrapper.open().session() as source, ONNXRuntime().load(made) as session:
        for name, expected in source.infer(inputs).items():
            np.testing.assert_allclose(session.infer(inputs)[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_failed_export_to_onnx_says_the_operator_not_what_to_report_to_pytorch(
    tmp_path: Path,
) -> None:
    needs("onnx_ir", "onnxscript")

    class Unknown(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(x)[0]

    path = tmp_path / "unknown.pt2"
    torch.export.save(torch.export.export(Unknown(), (torch.ones(2, 3, 3),)), path)
    with pytest.raises(ConversionError, match="qr") as caught:
        TorchExportModel(model_path=path).open().export(tmp_path / "unknown.onnx", "onnx")
    assert "Create an issue" not in str(caught.value)


def test_operations_and_weights_are_counted_as_the_loaded_program_has_them(tmp_path: Path) -> None:
    class Halves(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("counts", torch.arange(4))

        def forward(self, x: object) -> object:
            first, second = torch.chunk(self.linear(x), 2, dim=1)
            return first * second + self.counts[:2]

    path = tmp_path / "halves.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(
        torch.export.export(Halves(), (torch.ones(2, 4),), dynamic_shapes=({0: batch},)), path
    )
    wrapper = TorchExportModel(model_path=path)
    found, live = wrapper.contents(), wrapper.open()
    assert found.operations == Counter(each.kind for each in live.get_inference_graph().operations)
    assert found.tensors == len(live.get_weights())
    assert found.numbers == {"float32": 20, "int64": 4}


def test_a_large_program_is_refused_by_compilers_of_one_onnx_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = TorchExportModel(model_path=digits)
    wrapper.check_takers([ONNXStaticQuantizer])
    monkeypatch.setattr(module, "LARGEST", digits.stat().st_size - 1)
    wrapper.check_takers([PyTorchRuntime], remote=True)
    with pytest.raises(ConfigError, match="ONNXStaticQuantizer works on one file"):
        wrapper.check_takers([ONNXStaticQuantizer])


def test_weights_in_bfloat16_are_shown_as_floats_that_hold_them(
    digits: Path, tmp_path: Path
) -> None:
    from nnpipe.compilers.torch_float16 import TorchFloat16

    source = TorchExportModel(model_path=digits).open()
    source.load(digits)
    made = TorchFloat16(precision="bfloat16").compile(
        source.export(tmp_path / "a.pt2", "torch-export"), tmp_path / "b.pt2"
    )
    small = TorchExportModel(model_path=made.path).open()
    small.load(made.path)
    kernels = [array for array in small.get_weights().values() if array.ndim == 4]
    assert kernels
    assert all(kernel.dtype == np.float32 for kernel in kernels)
    name = next(name for name, array in small.get_weights().items() if array.ndim == 4)
    small.set_weights({name: 2 * kernels[0]})
    np.testing.assert_array_equal(small.get_weights([name])[name], 2 * kernels[0])


class Small(torch.nn.Module):  # type: ignore[misc]
    """A convolution, a normalisation, a mask and a tensor made on the way, all of one element
    type.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm, self.linear = torch.nn.LayerNorm(256), torch.nn.Linear(256, 10)
        self.register_buffer("mask", (torch.arange(256) % 7 > 0).float())

    def forward(self, image: Any) -> Any:
        kind = self.mask.dtype
        x = torch.relu(self.convolution(image.to(kind))).flatten(1)
        x = self.norm(x) * self.mask + torch.ones(x.shape[0], 1, dtype=kind)
        return self.linear(x).to(image.dtype)


@pytest.fixture(scope="module")
def small() -> Any:
    torch.manual_seed(0)
    return Small().eval().bfloat16()


@pytest.fixture(
    scope="module", params=[pytest.param("float32", marks=pytest.mark.slow), "bfloat16"]
)
def bfloat16_file(
    request: pytest.FixtureRequest, small: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A file with bfloat16 weights, whose input and output are of the one type or the other."""
    return saved(
        small,
        torch.zeros(2, 1, 8, 8, dtype=getattr(torch, request.param)),
        tmp_path_factory.mktemp("small"),
    )


def saved(network: Any, example: Any, folder: Path) -> Path:
    batch = torch.export.Dim("batch", min=1)
    torch.export.save(
        torch.export.export(network, (example,), dynamic_shapes=({0: batch},)), folder / "small.pt2"
    )
    return folder / "small.pt2"


def test_bfloat16_is_refused_before_the_export_with_a_remedy(bfloat16_file: Path) -> None:
    wrapper = TorchExportModel(model_path=bfloat16_file)
    wrapper.check_takers([PyTorchRuntime])
    for takers in (
        [ONNXRuntime],
        [ExecuTorchCompiler, ExecuTorchRuntime],
        [ONNXStaticQuantizer, ONNXRuntime],
    ):
        with pytest.raises(
            ConfigError, match=f"bfloat16 .* with which {takers[0].__name__} .* --dtype float32"
        ):
            wrapper.check_takers(takers)
    if wrapper.io.inputs[0].dtype == "bfloat16":
        with pytest.raises(
            ConfigError,
            match="'image' is bfloat16, which OpenVINORuntime can neither take nor give",
        ):
            wrapper.check_takers([OpenVINORuntime])
    else:
        wrapper.check_takers([OpenVINORuntime])
    (remark,) = wrapper.remarks
    assert remark.startswith("has bfloat16 weights or values; --dtype float32 converts it")
    converted = TorchExportModel(model_path=bfloat16_file, dtype="float32")
    converted.check_takers([ExecuTorchCompiler, ExecuTorchRuntime])
    assert converted.remarks == ()


@pytest.mark.slow
def test_bfloat16_is_converted_to_a_network_of_float32_with_equal_weights(
    small: Any, bfloat16_file: Path, tmp_path: Path
) -> None:
    wrapper = TorchExportModel(model_path=bfloat16_file, dtype="float32")
    assert {spec.dtype for spec in wrapper.io} == {"float32"}
    batch = generate_random_batch(wrapper.io, 3)
    with torch.no_grad():
        (expected,) = (
            (copy.deepcopy(small).float()(torch.from_numpy(array)).numpy())
            for array in batch.values()
        )
    with wrapper.open() as model:
        with model.session() as session:
            (found,) = session.infer(batch).values()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        made = model.export(tmp_path / "wide.pt2", "torch-export")
        as_onnx = model.export(tmp_path / "wide.onnx", "onnx")
    assert TorchExportModel(model_path=made.path).contents().numbers["bfloat16"] == 0
    with TorchExportModel(model_path=made.path).open().session() as session:
        np.testing.assert_array_equal(*session.infer(batch).values(), found)
    needs("onnxruntime")
    with ONNXRuntime().load(as_onnx) as session:
        np.testing.assert_allclose(*session.infer(batch).values(), expected, rtol=1e-4, atol=1e-5)


def test_programs_without_bfloat16_stay_the_file_they_are(digits: Path, tmp_path: Path) -> None:
    wrapper = TorchExportModel(model_path=digits, dtype="float32")
    made = wrapper.open().export(tmp_path / "copy.pt2", "torch-export")
    assert made.path.read_bytes() == digits.read_bytes()


def test_programs_that_read_the_bits_of_bfloat16_are_not_converted(tmp_path: Path) -> None:
    class Bits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.view(torch.int16) + 1

    path = saved(Bits(), torch.zeros(2, 4, dtype=torch.bfloat16), tmp_path)
    with pytest.raises(ArtifactError, match=r"small\.pt2: reads the bits of numbers"):
        _ = TorchExportModel(model_path=path, dtype="float32").io


def test_damaged_weights_are_not_converted(small: Any, tmp_path: Path) -> None:
    path = saved(small, torch.zeros(2, 1, 8, 8), tmp_path)
    kernel = small.linear.weight.detach().view(torch.int16).numpy().tobytes()
    assert path.read_bytes().count(kernel) == 1
    path.write_bytes(path.read_bytes().replace(kernel, bytes(len(kernel))))
    with pytest.raises(ArtifactError, match=r"small\.pt2: damaged"):
        TorchExportModel(model_path=path, dtype="float32").open().session()


def test_an_onnx_file_with_bfloat16_weights_is_refused_by_runtimes_that_cannot_run_it(
    tmp_path: Path,
) -> None:
    needs("onnx")
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [3], [1.0, 2.0, 3.0])
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        helper.make_node("Mul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "half", ends[:1], ends[1:], [weight])
    path = tmp_path / "half.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    )
    wrapper = ONNXModel(model_path=path)
    wrapper.check_takers([OpenVINORuntime])
    with pytest.raises(
        ConfigError,
        match="bfloat16 weights or values, with which ONNXRuntime does not work; export",
    ):
        wrapper.check_takers([ONNXRuntime])
