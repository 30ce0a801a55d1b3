"""Exported PyTorch programs as models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS

from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.errors import ConfigError, ConversionError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, random_batch
from nnpipe.frameworks import torch_onnx
from nnpipe.modelwrappers.classification.pytorch_cnn import PyTorchDigitsCNN
from nnpipe.modelwrappers.files import torch_export as module
from nnpipe.modelwrappers.files.torch_export import TorchExportModel
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
        return TorchExportModel(model_path=digits, scale=16.0, layout="nchw", class_count=10, num_threads=2)


def test_a_file_that_a_stranger_saved_runs_by_the_names_in_its_graph(tmp_path: Path) -> None:
    class Difference(torch.nn.Module):  # type: ignore[misc]
        def forward(self, first: object, second: object) -> object:
            return torch.relu(first) - second  # type: ignore[operator]

    path = tmp_path / "difference.pt2"
    example = (torch.zeros(2, 3), torch.zeros(2, 3))
    batch_axis = torch.export.Dim("batch")
    program = torch.export.export(Difference(), example, dynamic_shapes=({0: batch_axis}, {0: batch_axis}))
    torch.export.save(program, path)
    model = TorchExportModel(model_path=path).open()
    assert [spec.name for spec in model.io.inputs] == ["first", "second"]
    generator = np.random.default_rng(0)
    batch: Batch = {name: generator.standard_normal((5, 3)).astype(np.float32) for name in ("second", "first")}
    with model.session() as session:
        (result,) = session.infer(batch).values()
    np.testing.assert_array_equal(result, np.maximum(batch["first"], 0) - batch["second"])


@pytest.mark.parametrize("whole", [True, False])
def test_a_large_program_is_written_as_onnx_weight_by_weight(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """A program that fits into one ONNX file becomes one; a larger one gets its weights beside it."""
    from nnpipe.formats.onnx import read_onnx
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    needs("onnx_ir", "onnxscript", "onnxruntime")
    monkeypatch.setattr(torch_onnx, "_SMALL", 0)
    if not whole:
        monkeypatch.setattr(module, "LARGEST", digits.stat().st_size - 1)
    wrapper = TorchExportModel(model_path=digits)
    made = wrapper.open().export(tmp_path / "large.onnx", "onnx")
    beside = [] if whole else ["large.onnx.0.weights"]
    assert list(read_onnx(made.path).external) == beside
    assert sorted(each.name for each in tmp_path.iterdir()) == ["large.onnx", *beside, "large.onnx.json"]
    batch = random_batch(wrapper.io, 2)
    with wrapper.open().session() as source, ONNXRuntime().load(made) as session:
        for name, expected in source.infer(batch).items():
            np.testing.assert_allclose(session.infer(batch)[name], expected, rtol=1e-4, atol=1e-5)


def test_attention_whose_result_is_viewed_is_written_as_onnx(tmp_path: Path) -> None:
    """PyTorch writes attention as products, whose results lie in memory in another order."""
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    needs("onnx_ir", "onnxscript", "onnxruntime")

    class Heads(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.view(x.shape[0], -1, 2, 4).transpose(1, 2)
            joined = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
            return joined.contiguous().view(x.shape[0], -1, 8)

    path = tmp_path / "heads.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(Heads(), (torch.ones(2, 3, 8),), dynamic_shapes=({0: batch},)), path)
    wrapper = TorchExportModel(model_path=path)
    made = wrapper.open().export(tmp_path / "heads.onnx", "onnx")
    inputs = random_batch(wrapper.io, 2)
    with wrapper.open().session() as source, ONNXRuntime().load(made) as session:
        for name, expected in source.infer(inputs).items():
            np.testing.assert_allclose(session.infer(inputs)[name], expected, rtol=1e-4, atol=1e-5)


def test_a_failed_export_to_onnx_says_the_operator_not_what_to_report_to_pytorch(tmp_path: Path) -> None:
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
    torch.export.save(torch.export.export(Halves(), (torch.ones(2, 4),), dynamic_shapes=({0: batch},)), path)
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


def test_weights_in_bfloat16_are_shown_as_floats_that_hold_them(digits: Path, tmp_path: Path) -> None:
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
