"""ExecuTorch runs its programs bound by name, up to the number of samples that they were
compiled for.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.executorch import ExecuTorchCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError, SpecMismatch
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.frameworks.executorch import _find_advice
from nnpipe.frameworks.runtime_failures import make_runtime_failure
from nnpipe.runtimes.executorch import ExecuTorchRuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.model_files import NETWORK_IO, write_torch_network
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line

pytest.importorskip("torch", reason="PyTorch is not installed")
needs("executorch")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_torch_network(tmp_path_factory.mktemp("source") / "network.pt2")


@pytest.fixture(scope="module")
def compiled(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return ExecuTorchCompiler(max_batch=16).compile(
        network, tmp_path_factory.mktemp("compiled") / "network.pte"
    )


class TestExecuTorchRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> ExecuTorchRuntime:
        return ExecuTorchRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, network: Artifact, batch: Batch) -> Batch:
        with PyTorchRuntime().load(network) as session:
            return session.infer(batch)


def test_a_bare_file_says_what_it_takes_and_gives(compiled: Artifact) -> None:
    found = ExecuTorchRuntime().io_of(compiled.path)
    for side in ("inputs", "outputs"):
        assert set(getattr(found, side)) == set(getattr(NETWORK_IO, side))


def test_every_number_of_samples_up_to_the_greatest_is_right(
    network: Artifact, compiled: Artifact
) -> None:
    with ExecuTorchRuntime().load(compiled) as session, PyTorchRuntime().load(network) as source:
        for size in (16, 1, 15, 2):
            batch = generate_random_batch(NETWORK_IO, size, seed=size)
            for name, array in source.infer(batch).items():
                np.testing.assert_allclose(session.infer(batch)[name], array, rtol=1e-5, atol=1e-5)


def test_more_samples_are_refused_by_name(compiled: Artifact) -> None:
    with ExecuTorchRuntime().load(compiled) as session:
        with pytest.raises(
            SpecMismatch, match=r"'image': 17 samples.*at most 16.*--max-batch 17"
        ) as caught:
            session.put(generate_random_batch(NETWORK_IO, 17))
        assert_one_line(caught.value)
        session.infer(generate_random_batch(NETWORK_IO, 2))


def test_the_pool_of_threads_is_never_pulled_away_from_an_open_session(compiled: Artifact) -> None:
    batch = generate_random_batch(NETWORK_IO, 2)
    with ExecuTorchRuntime(num_threads=1).load(compiled) as session:
        assert session.stats() == {"num_threads": 1}
        with pytest.raises(
            ConfigError, match=r"with 1 threads is open.*close it before asking for 2"
        ) as caught:
            ExecuTorchRuntime(num_threads=2).load(compiled)
        assert_one_line(caught.value)
        expected = session.infer(batch)
    with ExecuTorchRuntime(num_threads=2).load(compiled) as session:
        assert session.stats() == {"num_threads": 2}
        np.testing.assert_allclose(
            session.infer(batch)["scores"], expected["scores"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("content", [b"", b"no program" * 20])
def test_what_executorch_cannot_load_is_named(
    compiled: Artifact, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "strange.pte"
    write_sealed(
        path, SealedFile(content, "executorch", read_sealed(compiled.path, "executorch").io)
    )
    with pytest.raises(ArtifactError, match=r"strange\.pte: ExecuTorch cannot load it") as caught:
        ExecuTorchRuntime().load(Artifact.create(path, "executorch", NETWORK_IO))
    assert_one_line(caught.value)


def test_what_a_code_of_executorch_means_is_told(tmp_path: Path) -> None:
    error = RuntimeError("Failed to execute method forward, error: 0x12")
    told = make_runtime_failure(
        tmp_path / "m.pte", "ExecuTorch", "run it", error, _find_advice(error)
    )
    assert "m.pte: ExecuTorch cannot run it: Failed to execute method forward" in str(told)
    assert "error: 0x12; that is an argument that a kernel" in str(told)
    assert "compiled with --backend portable or --precision fp32, it may run" in str(told)
