"""Tiny models in every format compute the difference of their inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.discoverable import C
from nnpipe.runtimes.c import CRuntime
from nnpipe.workflows.devices.inspection import make_trial_batch, write_trial_models


def test_a_model_is_written_in_each_format_that_is_taken(tmp_path: Path) -> None:
    assert [model.format for model in write_trial_models(tmp_path)] == ["onnx", "tflite", "c"]
    assert [model.format for model in write_trial_models(tmp_path, {"c", "tflite"})] == [
        "tflite",
        "c",
    ]


def test_the_file_in_c_is_the_same_in_every_version(tmp_path: Path) -> None:
    """Servers in C have it linked in, and know it by its hash."""
    (model,) = write_trial_models(tmp_path, {"c"})
    assert model.sha256 == "d712d38f067471d9ae42748c7fc614220156c024f0a4e16ecd17d6abf727c962"


def test_the_model_in_c_subtracts(tmp_path: Path) -> None:
    if C.find() is None:
        pytest.skip("no C compiler is installed (apt install gcc)")
    (model,) = write_trial_models(tmp_path, {"c"})
    batch, right = make_trial_batch(model, 0)
    with CRuntime().load(model) as session:
        (found,) = session.infer(batch).values()
    np.testing.assert_array_equal(found, right)
