"""TVM's libraries run bound by name, and damaged or foreign machine code never does."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.tvm import TVMCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.runtimes.tvm import TVMRuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line

pytest.importorskip("onnx", reason="onnx is not installed")
needs("tvm")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_onnx_network(tmp_path_factory.mktemp("source") / "network.onnx")


@pytest.fixture(scope="module")
def compiled(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return TVMCompiler().compile(network, tmp_path_factory.mktemp("compiled") / "network.so")


class TestTVMRuntime(RuntimeContract):
    expected_atol = 1e-5

    @pytest.fixture
    def runtime(self) -> TVMRuntime:
        return TVMRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, network: Artifact, batch: Batch) -> Batch:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(network.path))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(batch)), strict=True))


def test_a_bare_file_says_what_it_takes_and_gives(compiled: Artifact) -> None:
    assert TVMRuntime().io_of(compiled.path) == NETWORK_IO


def test_servers_know_that_loading_runs_machine_code() -> None:
    assert TVMRuntime.native_code == ("tvm",)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="only Linux tells the cores of a thread"
)
def test_the_caller_keeps_its_cores(compiled: Artifact) -> None:
    before = os.sched_getaffinity(0)
    with TVMRuntime(num_threads=1).load(compiled) as session:
        session.infer(generate_random_batch(NETWORK_IO, 2))
        assert session.stats()["num_threads"] == 1
    assert os.sched_getaffinity(0) == before


def test_two_models_of_one_shape_are_told_apart(tmp_path: Path, compiled: Artifact) -> None:
    other = TVMCompiler(target="generic").compile(
        write_onnx_network(tmp_path / "other.onnx", seed=7), tmp_path / "other.so"
    )
    batch = generate_random_batch(NETWORK_IO, 2)
    with TVMRuntime().load(compiled) as one, TVMRuntime().load(other) as two:
        first, second = one.infer(batch), two.infer(batch)
        assert np.abs(first["scores"] - second["scores"]).max() > 0.1
        np.testing.assert_array_equal(one.infer(batch)["scores"], first["scores"])


def resealed(source: Artifact, path: Path, **changes: Any) -> Artifact:
    write_sealed(path, dataclasses.replace(read_sealed(source.path, "tvm"), **changes))
    return Artifact.create(path, "tvm", source.io)


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ({"machine": "riscv64"}, "compiled for riscv64 processors, this one is"),
        ({}, "compiled for None processors"),
        (
            {"machine": None, "features": ["antigravity"]},
            "a processor with antigravity, which this one lacks",
        ),
    ],
)
def test_code_for_another_processor_is_refused(
    compiled: Artifact, tmp_path: Path, notes: dict[str, Any], told: str
) -> None:
    if notes.get("machine", "") is None:
        notes = notes | {"machine": read_sealed(compiled.path, "tvm").notes["machine"]}
    with pytest.raises(ArtifactError, match=told) as caught:
        TVMRuntime().load(resealed(compiled, tmp_path / "foreign.so", notes=notes))
    assert "foreign.so" in str(caught.value)
    assert_one_line(caught.value)


def test_what_tvm_cannot_load_is_named(compiled: Artifact, tmp_path: Path) -> None:
    strange = resealed(compiled, tmp_path / "strange.so", content=b"no library")
    with pytest.raises(ArtifactError, match=r"strange\.so: TVM cannot load it") as caught:
        TVMRuntime().load(strange)
    assert_one_line(caught.value)
    assert isinstance(read_sealed(strange.path, "tvm"), SealedFile)
