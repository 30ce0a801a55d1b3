"""A file that shows neither weights nor values is compared by its outputs, and the result says
so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NotSupported
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.verification.compare_outputs import Reference
from nnpipe.workflows.verification.subprocess_tasks import look_inside

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
needs("onnx_ir")


@pytest.mark.parametrize("parent", [False, True])
def test_of_a_file_that_shows_nothing_no_tensor_is_named(tmp_path: Path, parent: bool) -> None:
    labels = np.arange(60) % 4
    inputs = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    path = write_onnx_classifier(tmp_path / "source.onnx", inputs, labels)
    wrapper = find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)})
    source = wrapper.open(path)
    samples = [{source.io.inputs[0].name: inputs[n : n + 1]} for n in range(8)]
    with source.session() as session:
        Reference.from_session(session, source.io, samples).write(tmp_path / "reference.npz")
    (tmp_path / "model.openvino").write_bytes(b"compiled")
    origin = source.export(tmp_path / "exported.onnx", "onnx") if parent else None
    Artifact.create(tmp_path / "model.openvino", "openvino", source.io, parent=origin)
    task = {
        "reference": str(tmp_path / "reference.npz"),
        "artifact": str(tmp_path / "model.openvino"),
        "source": str(path),
        "binding": {"names": {}, "axes": []},
        "sample": 0,
        "claims": ["float"],
        "told": [],
        "candidate": CandidateSpec("source", wrapper, path, judged=False).to_json(),
    }
    if not parent:
        with pytest.raises(NotSupported, match="outputs were compared, and no tensor can be named"):
            look_inside(task)
        return
    found = look_inside(task)
    assert found["divergence"]["suspects"] == []
    assert found["divergence"]["shown"].endswith("exported.onnx, which it was made from")
