"""ExecuTorch programs compute what the exported PyTorch program computes."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.executorch import ExecuTorchCompiler
from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError, SpecMismatch
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.runtimes.executorch import ExecuTorchRuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import ModelCompilerContract, run_compiled
from nnpipe.testing.model_files import NETWORK_IO, write_torch_network
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("executorch")


def samples(count: int) -> list[Batch]:
    return [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(count)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_torch_network(tmp_path_factory.mktemp("source") / "network.pt2")


CompileOnce = Callable[[ExecuTorchCompiler], Artifact]


@pytest.fixture(scope="module")
def compile_once(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> CompileOnce:
    @functools.cache
    def compiled(compiler: ExecuTorchCompiler) -> Artifact:
        path = tmp_path_factory.mktemp("compiled") / "network.pte"
        return compiler.compile(network, path, lambda: samples(60))

    return compiled


@pytest.mark.slow
class TestExecuTorchCompiler(ModelCompilerContract):
    arguments: dict[str, Any] = {}

    @pytest.fixture
    def compiler(self) -> ExecuTorchCompiler:
        return ExecuTorchCompiler(**self.arguments)

    @pytest.fixture
    def artifact(self, network: Artifact) -> Artifact:
        return network

    @pytest.fixture
    def compiled(self, compiler: ExecuTorchCompiler, compile_once: CompileOnce) -> Artifact:
        return compile_once(compiler)

    @pytest.fixture
    def runtime(self) -> ExecuTorchRuntime:
        return ExecuTorchRuntime()

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return samples(60)

    @pytest.fixture
    def calibration(self) -> Calibration:
        return lambda: samples(60)

    @pytest.fixture
    def expected(self, artifact: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        return run_compiled(PyTorchRuntime(), artifact, artifact.io, batches)


class TestPortableKernels(TestExecuTorchCompiler):
    arguments = {"backend": "portable", "max_batch": 4}


class TestOneSample(TestExecuTorchCompiler):
    arguments = {"max_batch": 1}


class TestIntegers(TestExecuTorchCompiler):
    arguments = {"precision": "int8", "per_channel": False}
    tolerance = 0.5  # of outputs between -8 and 8; "total" adds up five scores and their errors
    agreement = 0.9


@pytest.mark.slow
def test_one_sample_in_a_call_is_described_as_such(network: Artifact, tmp_path: Path) -> None:
    made = ExecuTorchCompiler(max_batch=1).compile(network, tmp_path / "made.pte")
    assert [spec.shape[0] for spec in made.io] == [1] * 4
    (found,) = run_compiled(ExecuTorchRuntime(), made, NETWORK_IO, samples(1))
    (expected,) = run_compiled(PyTorchRuntime(), network, NETWORK_IO, samples(1))
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5, atol=1e-5)


def test_integers_need_kernels_for_them() -> None:
    with pytest.raises(ConfigError, match="--precision int8 needs --backend xnnpack") as caught:
        ExecuTorchCompiler(precision="int8", backend="portable")
    assert_one_line(caught.value)


def free_length(path: Path, longest: int | None = None) -> Artifact:
    """Return a program that takes any number of rows of any length, or of a length up to a
    stated one.
    """

    class Summed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (2 * x).cumsum(1)

    free = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=1, max=longest)}
    program = torch.export.export(Summed(), (torch.ones(2, 3),), dynamic_shapes=(free,))
    program.example_inputs = None
    saved = io.BytesIO()
    torch.export.save(program, saved)
    path.write_bytes(saved.getvalue())
    found = PyTorchRuntime().io_of(path)
    assert found == IOSpec(
        (TensorSpec("x", (None, None), "float32"),),
        (TensorSpec(found.outputs[0].name, (None, None), "float32"),),
    )
    return Artifact.create(path, "torch-export", found)


@pytest.mark.slow
def test_free_axes_without_a_greatest_length_are_refused_by_name(tmp_path: Path) -> None:
    source = free_length(tmp_path / "m.pt2")
    with pytest.raises(
        CompileError, match=r"m\.pt2: axis 1 of 'x' is free without .*; --max-length sets"
    ) as caught:
        ExecuTorchCompiler().compile(source, tmp_path / "made.pte")
    assert_one_line(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "asked", "longest"), [(None, 9, 9), (9, None, 9), (20, 9, 9), (9, 20, 9)]
)
def test_free_axes_take_any_length_up_to_the_greatest(
    stated: int | None, asked: int | None, longest: int, tmp_path: Path
) -> None:
    source = free_length(tmp_path / "m.pt2", stated)
    made = ExecuTorchCompiler(max_length=asked, max_batch=4).compile(source, tmp_path / "made.pte")
    assert made.io.inputs == source.io.inputs
    (name,) = (spec.name for spec in made.io.outputs)
    with ExecuTorchRuntime().load(made) as session:
        for shape in (4, longest), (1, 2), (3, 5):
            x = np.random.default_rng(0).random(shape, np.float32)
            assert session.infer({"x": x})[name] == pytest.approx(2 * x.cumsum(1), rel=1e-5)
        with pytest.raises(
            SpecMismatch, match=f"for at most {longest}; compile it with --max-length 10"
        ) as caught:
            session.infer({"x": np.zeros((1, 10), np.float32)})
    assert_one_line(caught.value)


@pytest.mark.slow
def test_tensors_kept_in_floats_leave_the_rest_in_integers(
    network: Artifact, tmp_path: Path
) -> None:
    """What is computed in floats is nearer to the source."""

    def error(**arguments: Any) -> float:
        made = ExecuTorchCompiler(precision="int8", **arguments).compile(
            network, tmp_path / "made.pte", lambda: samples(60)
        )
        with ExecuTorchRuntime().load(made) as session, PyTorchRuntime().load(network) as source:
            batches = samples(20)
            differences = [
                session.infer(batch)["scores"] - source.infer(batch)["scores"] for batch in batches
            ]
        return float(np.mean(np.abs(differences)))

    plain, mixed = error(), error(keep_float=("hardtanh*",))
    assert mixed < plain
    with pytest.raises(CompileError, match="or all of them are kept in floats"):
        error(keep_float=("*",))
    # By the name of an input, and by that of a normalisation that is folded into a convolution.
    assert error(keep_float=("image", "batch_norm*")) < plain


@pytest.mark.slow
def test_integers_stay_integers(tmp_path: Path) -> None:
    """XNNPACK's quantiser observes the places of a concatenation, and PyTorch computes no
    histogram of them.
    """

    class Looked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(8, 4)
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, places: Any) -> Any:
            return self.linear(self.table(torch.cat([places, places + 1], 1)))

    torch.manual_seed(0)
    saved = io.BytesIO()
    torch.export.save(
        torch.export.export(Looked().eval(), (torch.zeros(1, 3, dtype=torch.int64),)), saved
    )
    (tmp_path / "m.pt2").write_bytes(saved.getvalue())
    found = PyTorchRuntime().io_of(tmp_path / "m.pt2")
    source = Artifact.create(tmp_path / "m.pt2", "torch-export", found)
    data = [{found.inputs[0].name: np.array([[seed % 7, 1, 6]])} for seed in range(16)]
    made = ExecuTorchCompiler(precision="int8").compile(source, tmp_path / "made.pte", lambda: data)
    name = found.outputs[0].name
    with ExecuTorchRuntime().load(made) as session, PyTorchRuntime().load(source) as expected:
        for batch in data:
            assert session.infer(batch)[name] == pytest.approx(expected.infer(batch)[name], abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["ExecuTorchCompiler", "TorchPT2EQuantizer"])
def test_a_result_that_its_input_dwarfs_has_a_scale_that_xnnpack_loads(
    by: str, tmp_path: Path
) -> None:
    """Little is left but the bias: the weight of the large channel is rounded to 0, and so is
    the small channel.
    """

    class Dwarfed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)
            self.linear.weight.data, self.linear.bias.data = (
                torch.tensor([[1e-6, 1.0]]),
                torch.tensor([20.0]),
            )

        def forward(self, x: Any) -> Any:
            # which shares the scale of the linear layer
            return torch.cat([self.linear(x).relu(), x[:, 1:]], 1)

    saved = io.BytesIO()
    torch.export.save(torch.export.export(Dwarfed().eval(), (torch.zeros(1, 2),)), saved)
    (tmp_path / "m.pt2").write_bytes(saved.getvalue())
    found = PyTorchRuntime().io_of(tmp_path / "m.pt2")
    source = Artifact.create(tmp_path / "m.pt2", "torch-export", found)
    random = np.random.default_rng(0)
    data = [
        {found.inputs[0].name: (random.random((1, 2)) * [1e6, 1]).astype(np.float32)}
        for _ in range(20)
    ]
    if by == "TorchPT2EQuantizer":
        quantiser = TorchPT2EQuantizer(quantizer="xnnpack")
        source, precision = quantiser.compile(source, tmp_path / "q.pt2", lambda: data), "fp32"
    else:
        precision = "int8"
    compiler = ExecuTorchCompiler(precision=precision)  # type: ignore[arg-type]
    made = compiler.compile(source, tmp_path / "made.pte", lambda: data)
    for outputs in run_compiled(ExecuTorchRuntime(), made, made.io, data):
        (array,) = outputs.values()
        assert array[0, 0] == pytest.approx(20, abs=31 / 2)  # sums have steps of 1e6 / 255 / 127
