"""Machine code by AOTInductor computes what the program computes, and is refused where it cannot
run.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.compilers.torch_inductor import TorchInductorCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.sealed import SealedFile, write_sealed
from nnpipe.frameworks.torch_inductor import FORMAT, release
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.runtimes.torch_inductor import TorchInductorRuntime
from nnpipe.testing.model_files import (
    NETWORK_IO,
    create_torch_network,
    run_network,
    write_torch_network,
)
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("compiled")
    source = write_torch_network(folder / "network.pt2")
    return TorchInductorCompiler().compile(source, folder / "network.aoti")


@pytest.mark.slow
class TestTorchInductorRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return TorchInductorRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return run_network(create_torch_network(), batch)


@pytest.mark.slow
def test_machine_code_computes_what_the_program_computes(compiled: Artifact) -> None:
    with TorchInductorRuntime().load(compiled) as session:
        for size in (1, 5):
            batch = generate_random_batch(NETWORK_IO, size, seed=size)
            found = session.infer(batch)
            for name, array in run_network(create_torch_network(), batch).items():
                np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
class TestCompiledWhenItRuns(RuntimeContract):
    """``torch.compile`` in the runtime of exported programs."""

    @pytest.fixture
    def runtime(self) -> Runtime:
        return PyTorchRuntime(compile=True)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        assert compiled.parent is not None
        return compiled.parent

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return run_network(create_torch_network(), batch)


def test_compiling_is_for_the_cpu_only() -> None:
    with pytest.raises(ConfigError, match="--compile needs --device cpu, not cuda"):
        PyTorchRuntime(compile=True, device="cuda")


@pytest.mark.slow
def test_a_bare_file_says_what_it_takes_and_gives(compiled: Artifact) -> None:
    assert (
        TorchInductorRuntime().io_of(compiled.path).to_json()["inputs"][::-1]
        == NETWORK_IO.to_json()["inputs"]
    )


def test_servers_are_told_that_it_runs_code_from_the_file() -> None:
    assert TorchInductorRuntime.native_code == TorchInductorRuntime.accepts


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ({"torch": "1.2.3"}, r"made by PyTorch 1\.2\.3, .* compile it anew"),
        ({"machine": "z80"}, "made for z80 with .*, which this processor is not"),
        pytest.param(
            {"vectors": "mmx"}, "with mmx, which this processor is not", marks=pytest.mark.slow
        ),  # compiles to learn what this processor is
    ],
)
def test_code_for_another_machine_is_refused(
    tmp_path: Path, note: dict[str, Any], told: str
) -> None:
    here = {"torch": release(), "machine": platform.machine(), "vectors": ""}
    path = tmp_path / "foreign.aoti"
    write_sealed(path, SealedFile(b"not read so far", FORMAT, NETWORK_IO, {**here, **note}))
    with pytest.raises(ArtifactError, match=told) as caught:
        TorchInductorRuntime().load(Artifact.create(path, FORMAT, NETWORK_IO))
    assert str(path) in str(caught.value)
    assert_one_line(caught.value)
