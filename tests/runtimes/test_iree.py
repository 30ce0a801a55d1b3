"""IREE's modules run bound by name, and damaged or foreign machine code never does."""

from __future__ import annotations

import dataclasses
import faulthandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.iree import IREECompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.sealed import read_sealed, write_sealed
from nnpipe.runtimes.iree import IREERuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line

pytest.importorskip("onnx", reason="onnx is not installed")
needs("iree.compiler", "iree.runtime")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_onnx_network(tmp_path_factory.mktemp("source") / "network.onnx")


@pytest.fixture(scope="module")
def compiled(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return IREECompiler().compile(network, tmp_path_factory.mktemp("compiled") / "network.vmfb")


class TestIREERuntime(RuntimeContract):
    expected_atol = 1e-5

    @pytest.fixture
    def runtime(self) -> IREERuntime:
        return IREERuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, network: Artifact, batch: Batch) -> Batch:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(network.path))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(batch)), strict=True))


@pytest.mark.slow
def test_sessions_of_several_threads_end_however_soon_they_are_closed(compiled: Artifact) -> None:
    """IREE's device, destroyed right after it computed, waited for its own threads once in a few
    hundred times.
    """
    batch = generate_random_batch(NETWORK_IO, 1)
    # what waits in IREE's code cannot be interrupted
    faulthandler.dump_traceback_later(200, exit=True)
    try:
        for _ in range(1000):
            with IREERuntime(num_threads=2).load(compiled) as session:
                session.infer(batch)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize(
    ("threads", "driver"), [(1, "local-sync"), (0, "local-task"), (3, "local-task")]
)
def test_any_number_of_threads_computes_the_same(
    compiled: Artifact, threads: int, driver: str
) -> None:
    batch = generate_random_batch(NETWORK_IO, 4)
    with (
        IREERuntime(num_threads=threads).load(compiled) as session,
        IREERuntime(num_threads=2).load(compiled) as other,
    ):
        assert session.stats() == {"num_threads": threads, "driver": driver}
        np.testing.assert_array_equal(session.infer(batch)["scores"], other.infer(batch)["scores"])


def test_a_bare_file_says_what_it_takes_and_gives(compiled: Artifact) -> None:
    assert IREERuntime().io_of(compiled.path) == NETWORK_IO


def test_servers_know_that_loading_runs_machine_code() -> None:
    assert IREERuntime.native_code == ("iree",)


def resealed(source: Artifact, path: Path, **changes: Any) -> Artifact:
    write_sealed(path, dataclasses.replace(read_sealed(source.path, "iree"), **changes))
    return Artifact.create(path, "iree", source.io)


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ({"machine": "riscv64"}, "compiled for riscv64 processors, this one is"),
        ({"features": ["avx9001"]}, "a processor with avx9001, which this one lacks"),
        ({"function": "other"}, "other"),
    ],
)
def test_code_for_another_processor_is_refused(
    compiled: Artifact, tmp_path: Path, notes: dict[str, Any], told: str
) -> None:
    known = dict(read_sealed(compiled.path, "iree").notes)
    with pytest.raises(ArtifactError, match=told) as caught:
        IREERuntime().load(resealed(compiled, tmp_path / "foreign.vmfb", notes=known | notes))
    assert "foreign.vmfb" in str(caught.value)
    assert_one_line(caught.value)


def test_what_iree_cannot_load_is_named(compiled: Artifact, tmp_path: Path) -> None:
    strange = resealed(compiled, tmp_path / "strange.vmfb", content=b"no module")
    with pytest.raises(ArtifactError, match=r"strange\.vmfb: IREE cannot load it") as caught:
        IREERuntime().load(strange)
    assert_one_line(caught.value)
