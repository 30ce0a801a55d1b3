"""Programs compiled ahead of time keep their contract; the runtime's tests compile one in every
run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network_contracts import TorchNetworkContract

from nnpipe.compilers.torch_inductor import TorchInductorCompiler
from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import generate_random_batch
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.runtimes.torch_inductor import TorchInductorRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import NETWORK_IO, create_torch_network, write_torch_network

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.slow
class TestTorchInductorCompiler(TorchNetworkContract):
    @pytest.fixture
    def compiler(self) -> TorchInductorCompiler:
        return TorchInductorCompiler()

    @pytest.fixture
    def runtime(self) -> TorchInductorRuntime:
        return TorchInductorRuntime()

    @pytest.fixture(scope="class")
    @classmethod
    def compiled(cls, source: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        return TorchInductorCompiler().compile(
            source, tmp_path_factory.mktemp("compiled") / "network.aoti"
        )

    def test_it_is_made_for_this_processor(self, compiled: Artifact) -> None:
        assert compiled.target.startswith(__import__("platform").machine())
        assert compiled.io == NETWORK_IO


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    pytest.importorskip("torchao", reason="torchao is not installed")
    folder = tmp_path_factory.mktemp("quantised")
    source = write_torch_network(folder / "network.pt2", create_torch_network(channels=16))
    return TorchPT2EQuantizer().compile(source, folder / "int8.pt2", lambda: SAMPLES)


SAMPLES = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 1])
def test_a_quantised_program_gives_what_it_states(
    quantised: Artifact, tmp_path: Path, batch: int | None
) -> None:
    made = TorchInductorCompiler(fixed_batch=batch).compile(quantised, tmp_path / "int8.aoti")
    found = run_compiled(TorchInductorRuntime(), made, NETWORK_IO, SAMPLES)
    wanted = run_compiled(PyTorchRuntime(), quantised, NETWORK_IO, SAMPLES)
    for one, other in zip(found, wanted, strict=True):
        # now and then a step
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=0, atol=0.05)
    assert (
        made.outcome["integer kernels"] == "used"
        or "int8 computed in floats" in made.performance_caveats()[0]
    )


@pytest.mark.slow
def test_integer_kernels_that_are_wrong_are_left_out_and_told(
    quantised: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nnpipe.frameworks.torch_inductor._compute_distance", lambda found, wanted: 0.7
    )
    made = TorchInductorCompiler(fixed_batch=1).compile(quantised, tmp_path / "int8.aoti")
    assert made.performance_caveats() == (
        "int8 computed in floats: PyTorch's integer kernels are off by 70 %",
    )
    assert Artifact.read(made.path).performance_caveats() == made.performance_caveats()
