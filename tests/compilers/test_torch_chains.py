"""Compilers that start from PyTorch are put in a row automatically, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.compilers.onnx_optimizer import ONNXFloat16
from nnpipe.compilers.tflite import TorchToTFLite
from nnpipe.compilers.torch_float16 import TorchFloat16
from nnpipe.compilers.torch_inductor import TorchInductorCompiler
from nnpipe.compilers.torch_pruner import TorchChannelPruner, TorchClusterer, TorchPruner
from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan, find_bridge, plan
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import generate_random_batch
from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN, TensorFlowDigitsCNN
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.runtimes.torch_inductor import TorchInductorRuntime
from nnpipe.testing.session import assert_one_line

KNOWN: tuple[type[ModelCompiler], ...] = (
    TorchPruner,
    TorchChannelPruner,
    TorchClusterer,
    TorchFloat16,
    TorchPT2EQuantizer,
    TorchInductorCompiler,
    TorchToTFLite,
    ONNXFloat16,
)
TORCH = "torch-export"


@pytest.mark.parametrize(
    ("compilers", "runtime", "expected"),
    [
        ((TorchPruner, TorchPT2EQuantizer), PyTorchRuntime, Plan(TORCH, (TORCH, TORCH))),
        (
            (TorchPruner, TorchClusterer, TorchToTFLite),
            LiteRTRuntime,
            Plan(TORCH, (TORCH, TORCH, "tflite")),
        ),
        (
            (TorchChannelPruner, TorchPT2EQuantizer, TorchInductorCompiler),
            TorchInductorRuntime,
            Plan(TORCH, (TORCH, TORCH, "aoti")),
        ),
        ((TorchFloat16,), None, Plan(TORCH, (TORCH,))),
        ((ONNXFloat16,), ONNXRuntime, Plan("onnx", ("onnx",))),
    ],
)
def test_a_chain_finds_its_way(
    compilers: tuple[type[ModelCompiler], ...], runtime: type[Runtime] | None, expected: Plan
) -> None:
    assert plan(PyTorchDigitsCNN, compilers, runtime, known=KNOWN) == expected


@pytest.mark.parametrize(
    ("wrapper", "compilers", "runtime", "told"),
    [
        (
            PyTorchDigitsCNN,
            (TorchPruner,),
            LiteRTRuntime,
            r"LiteRTRuntime takes tflite, but TorchPruner gives torch-export; put "
            r"\S+\.TorchToTFLite between them",
        ),
        (
            PyTorchDigitsCNN,
            (TorchInductorCompiler,),
            PyTorchRuntime,
            "PyTorchRuntime takes torch-export, but TorchInductorCompiler gives aoti; no compiler "
            "here leads",
        ),
        (
            PyTorchDigitsCNN,
            (TorchToTFLite, TorchPruner),
            LiteRTRuntime,
            "TorchPruner takes torch-export, but TorchToTFLite gives tflite; no compiler here "
            "leads",
        ),
        (
            TensorFlowDigitsCNN,
            (TorchPruner,),
            PyTorchRuntime,
            r"TorchPruner takes torch-export, but TensorFlowDigitsCNN gives .+; no compiler here "
            r"leads",
        ),
    ],
)
def test_a_chain_that_does_not_fit_says_where(
    wrapper: type[ModelWrapper],
    compilers: tuple[type[ModelCompiler], ...],
    runtime: type[Runtime],
    told: str,
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        plan(wrapper, compilers, runtime, known=KNOWN)
    assert_one_line(caught.value)


def test_the_way_from_pytorch_to_tflite_is_one_step() -> None:
    assert find_bridge(TORCH, ("tflite",), KNOWN) == (TorchToTFLite,)


@pytest.mark.slow
def test_a_program_that_is_pruned_and_quantised_runs_and_keeps_its_zeros(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torchao", reason="torchao is not installed")
    model = PyTorchDigitsCNN().open()
    source = model.export(tmp_path / "digits.pt2", TORCH)
    samples = [generate_random_batch(model.io, 1, seed) for seed in range(8)]
    pruned = TorchPruner(sparsity=0.8).compile(source, tmp_path / "pruned.pt2")
    made = TorchPT2EQuantizer().compile(pruned, tmp_path / "int8.pt2", lambda: samples)
    assert [a.producer.get("class", "").rpartition(".")[2] for a in (made, made.parent) if a] == [
        "TorchPT2EQuantizer",
        "TorchPruner",
    ]
    for tensor in torch.export.load(made.path).state_dict.values():
        if tensor.dtype is torch.int8:
            assert (tensor == 0).double().mean() >= 0.79
    with PyTorchRuntime().load(made) as session, PyTorchRuntime().load(pruned) as other:
        for batch in samples:
            np.testing.assert_allclose(
                session.infer(batch)["scores"], other.infer(batch)["scores"], atol=0.02
            )
    for compiler, told in [
        (TorchPruner(), "prune a model before it is quantised"),
        (TorchClusterer(), "cluster a model before it is quantised"),
        (TorchToTFLite(), "quantised already; start from the floats"),
    ]:
        if isinstance(compiler, TorchToTFLite):
            pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        with pytest.raises(CompileError, match=told) as caught:
            compiler.compile(made, tmp_path / "again")
        assert_one_line(caught.value)
