"""What a model means is data: checked at birth, the same after JSON, and bounded where it comes
from a stranger.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model_metadata import ModelMetadata, find_differences
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import IOSpec, TensorSpec

IO = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
MEANING = ModelMetadata(
    (
        InputProcessing(
            "x", "image", sample_range=(0, 16), scale=16, mean=(0.5,), layout="nchw", size=(8, 8)
        ),
    ),
    (OutputMetadata("y", "logits", ("cat", "dog"), 1),),
)
NUMBERS = st.floats(-1e30, 1e30).filter(bool)
INPUTS = st.builds(
    InputProcessing,
    name=st.text(min_size=1, max_size=20),
    kind=st.sampled_from(["image", "features", "other"]),
    sample_range=st.none() | st.tuples(NUMBERS, NUMBERS).map(lambda ends: tuple(sorted(ends))),
    scale=NUMBERS,
    mean=st.lists(NUMBERS, max_size=4).map(tuple),
    deviation=st.lists(NUMBERS, max_size=4).map(tuple),
    layout=st.sampled_from(["auto", "nhwc", "nchw"]),
    resize=st.sampled_from(["none", "bilinear", "bicubic"]),
    shortest_edge=st.none() | st.integers(1, 9999),
    size=st.none() | st.tuples(st.integers(1, 9999), st.integers(1, 9999)),
    quantised=st.sampled_from(["auto", "raw", "already"]),
)


@given(INPUTS)
def test_json_changes_nothing(each: InputProcessing) -> None:
    meaning = ModelMetadata((each,), (OutputMetadata("y", "probabilities", ("a",)),))
    assert ModelMetadata.from_json(json.loads(json.dumps(meaning.to_json()))) == meaning


@pytest.mark.parametrize(
    "data",
    [
        [],
        7,
        {"inputs": {}},
        {"inputs": [[]]},
        {"inputs": [{}]},
        {"inputs": [{"name": ""}]},
        {"inputs": [{"name": "x", "scale": 0}]},
        {"inputs": [{"name": "x", "scale": 10**400}]},
        {"inputs": [{"name": "x", "scale": "255"}]},
        {"inputs": [{"name": "x", "mean": ["a"]}]},
        {"inputs": [{"name": "x", "mean": 3}]},
        {"inputs": [{"name": "x", "deviation": [0]}]},
        {"inputs": [{"name": "x", "layout": "chwn"}]},
        {"inputs": [{"name": "x", "layout": []}]},
        {"inputs": [{"name": "x", "kind": "boxes"}]},
        {"inputs": [{"name": "x", "later": 1}]},
        {"inputs": [{"name": "x", "size": [0, 4]}]},
        {"inputs": [{"name": "x", "size": [1.5, 4]}]},
        {"inputs": [{"name": "x", "shortest_edge": 0}]},
        {"inputs": [{"name": "x", "shortest_edge": 1 << 20}]},
        {"inputs": [{"name": "x", "sample_range": [2, 1]}]},
        {"inputs": [{"name": "x"}] * 2},
        {"inputs": [{"name": str(n)} for n in range(300)]},
        {"outputs": [{"name": "y"}]},
        {"outputs": [{"name": "y", "kind": "scores", "class_names": [1]}]},
        {"outputs": [{"name": "y", "kind": "scores", "class_offset": -1}]},
        {"code": "x"},
        {"code": {"class": 3, "arguments": {}}},
        {"code": {"class": "a.B", "arguments": []}},
    ],
)
def test_what_is_no_meaning_is_refused_in_one_line(data: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelMetadata.from_json(data)
    assert "\n" not in str(caught.value)
    path = tmp_path / "m.bin"
    path.write_bytes(b"m")
    Artifact.create(path, "onnx", IO)
    said = json.loads(get_sidecar_path(path).read_text())
    get_sidecar_path(path).write_text(json.dumps({**said, "meaning": data}))
    with pytest.raises(ArtifactError, match="not a model's description"):
        Artifact.read(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema": 1, "parent": ' * 20_000, "[" + "[]," * (1 << 22) + "0]"]
)
def test_a_description_cannot_exhaust_whoever_reads_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"m")
    get_sidecar_path(path).write_text(text)
    with pytest.raises(ArtifactError, match="not a model's description"):
        Artifact.read(path)


def test_it_stands_beside_the_file_and_older_files_have_none(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"m")
    assert Artifact.create(path, "onnx", IO, meaning=MEANING) == Artifact.read(path)
    assert Artifact.read(path).meaning == MEANING
    said = json.loads(get_sidecar_path(path).read_text())
    del said["meaning"]
    get_sidecar_path(path).write_text(json.dumps(said))
    assert Artifact.read(path).meaning is None


class Copier(ModelCompiler):
    """Copies a model; does not say what it was made from."""

    accepts, produces, suffix = ("onnx",), "onnx", ".onnx"

    def needs_calibration(self) -> bool:
        """Look at samples."""
        return True

    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        assert calibration is not None
        assert len(list(calibration())) == 3
        path.write_bytes(artifact.path.read_bytes())
        return Artifact.create(path, "onnx", artifact.io)


def test_every_compiler_carries_it_on_with_the_range_that_it_was_calibrated_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"m")
    source = Artifact.create(path, "onnx", IO, meaning=MEANING)
    batches = [{"x": np.full((1, 4), number, np.float32)} for number in (-2, 0, 5)]
    made = Copier().compile(source, tmp_path / "made.bin", lambda: batches)
    assert made.meaning is not None
    assert made.meaning.inputs[0].observed_range == (-2, 5)
    assert made.meaning.inputs[0].scale == 16
    assert made.meaning.outputs == MEANING.outputs
    assert Artifact.read(tmp_path / "made.bin") == made
    assert Artifact.create(path, "onnx", IO, parent=source).meaning == MEANING


def test_differences_are_told_step_by_step() -> None:
    used = ModelMetadata(
        (InputProcessing("x", "image", scale=255, mean=(0.5,), layout="nchw", size=(8, 8)),)
    )
    assert find_differences(MEANING, used) == {"scale": (16.0, 255.0)}
