"""Opening a user's model for the samples that came with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.user_inputs.inputs import import_inputs


@pytest.mark.parametrize(
    "preparation", [{}, {"result_output": "scores"}, {"result_kind": "logits"}, {"scale": 2.0}]
)
def test_arrays_of_floats_are_used_unchanged_whatever_is_said_of_the_outputs(
    tmp_path: Path, preparation: dict[str, Any]
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    y = np.arange(40) % 4
    path = write_onnx_classifier(tmp_path / "model.onnx", x, y)

    (wrapper, _), *_ = import_inputs(
        path, (x, y), tmp_path / "work", preparation=preparation
    ).models

    assert wrapper.preparation().known
    np.testing.assert_array_equal(
        wrapper.preprocess({"x": x[:3]})[wrapper.io.inputs[0].name],
        x[:3] / preparation.get("scale", 1.0),
    )
