"""A candidate travels as JSON, and what comes out opens the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.fakes import FakeRuntime, compute_expected, write_fake_model
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.testing.protocol import IO, assert_equal_outputs, create_batch
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.spec import CandidateSpec

pytest.importorskip("onnxruntime")


def sent(spec: CandidateSpec) -> CandidateSpec:
    return CandidateSpec.from_json(json.loads(json.dumps(spec.to_json())))


@pytest.fixture
def model(tmp_path: Path) -> Artifact:
    return write_onnx_network(tmp_path / "m.onnx")


def spec_of(model: Artifact) -> CandidateSpec:
    return CandidateSpec("m", ONNXModel(model_path=model.path, scale=16.0), model.path)


def test_all_of_it_arrives(model: Artifact) -> None:
    bare = spec_of(model)
    whole = replace(
        bare,
        runtime=ONNXRuntime(num_threads=2),
        artifact=model,
        format="onnx",
        export="onnx",
        judged=False,
        deployment=Deployment(NetworkProtocol(port=7), RemoteOptions(), serve=True),
        dataset=DigitsDataset(),
    )
    assert sent(bare) == bare
    assert sent(whole) == whole
    assert sent(whole).run_by == "ONNXRuntime, by way of NetworkProtocol"


def test_what_arrives_opens_the_same(model: Artifact) -> None:
    bare = spec_of(model)
    given = {tensor.name: np.ones((1, *tensor.shape[1:]), np.float32) for tensor in model.io.inputs}
    ways = [
        bare,
        replace(bare, runtime=ONNXRuntime()),
        replace(bare, runtime=ONNXRuntime(), artifact=model),
    ]
    found = []
    for each in ways:
        with sent(each).open() as session:
            found.append(session.infer(given))
    for other in found[1:]:
        assert_equal_outputs(found[0], other)


def test_a_server_that_is_to_be_started_is_one_that_runs(tmp_path: Path) -> None:
    model = write_fake_model(tmp_path, IO)
    wrapper = ONNXModel(model_path=model.path)
    spec = CandidateSpec(
        "m",
        wrapper,
        model.path,
        runtime=FakeRuntime(),
        artifact=model,
        deployment=Deployment(NetworkProtocol(port=0), serve=True),
    )
    with spec.start_server() as reached:
        arrived = sent(reached)
        assert arrived.deployment is not None
        assert not arrived.deployment.serve
        with arrived.open() as session:
            assert_equal_outputs(
                session.infer(create_batch()), compute_expected(IO, create_batch())
            )


def test_an_error_names_the_file_that_the_user_gave(model: Artifact, tmp_path: Path) -> None:
    compiled = Artifact.read(write_onnx_network(tmp_path / "compiled.onnx").path)
    compiled.path.write_bytes(b"rubbish")
    spec = replace(spec_of(model), runtime=ONNXRuntime(), artifact=compiled)
    said = r"ONNXModel made a model from .*m\.onnx that ONNXRuntime refuses: .*compiled\.onnx: "
    with pytest.raises(CompileError, match=said), spec.open():
        raise AssertionError
