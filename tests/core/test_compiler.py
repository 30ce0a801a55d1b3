"""Compilers get models and samples that have been checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency, SpecMismatch
from nnpipe.core.tensors import IOSpec, TensorSpec

IO = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
SAMPLE = {"x": np.zeros((1, 2), np.float32)}


class Counter(ModelCompiler):
    """Writes how many samples it was shown."""

    accepts, produces = ("paper",), "count"

    def needs_calibration(self) -> bool:
        return True

    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        assert calibration is not None
        path.write_text(f"{len(list(calibration()))} {len(list(calibration()))}", "utf-8")
        return Artifact.create(path, self.produces, artifact.io, parent=artifact)


class Elsewhere(Counter):
    """Needs what nobody has."""

    requires = ("surely_not_installed_anywhere",)


@pytest.fixture
def model(tmp_path: Path) -> Artifact:
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    return Artifact.create(path, "paper", IO)


def test_samples_are_given_anew_at_every_call(model: Artifact, tmp_path: Path) -> None:
    made = Counter().compile(model, tmp_path / "out", lambda: [SAMPLE, SAMPLE])
    assert made.path.read_text("utf-8") == "2 2"
    assert made.parent == model


def test_samples_that_the_model_does_not_take_are_refused(model: Artifact, tmp_path: Path) -> None:
    with pytest.raises(SpecMismatch, match="'x' has float64 elements"):
        Counter().compile(model, tmp_path / "out", lambda: [SAMPLE, {"x": np.zeros((1, 2))}])


@pytest.mark.parametrize("calibration", [None, lambda: []])
def test_missing_samples_are_asked_for(
    model: Artifact, tmp_path: Path, calibration: Calibration | None
) -> None:
    with pytest.raises(ConfigError, match="calibration"):
        Counter().compile(model, tmp_path / "out", calibration)


def test_a_model_file_that_was_replaced_is_refused(model: Artifact, tmp_path: Path) -> None:
    model.path.write_bytes(b"others")
    with pytest.raises(ArtifactError, match="damaged or was replaced"):
        Counter().compile(model, tmp_path / "out", lambda: [SAMPLE])


def test_another_format_and_a_missing_package_are_named_first(
    model: Artifact, tmp_path: Path
) -> None:
    foreign = Artifact.create(model.path, "stone", IO)
    with pytest.raises(ConfigError, match=r"Counter reads paper, .*model is stone"):
        Counter().compile(foreign, tmp_path / "out")
    with pytest.raises(MissingDependency, match="surely_not_installed_anywhere"):
        Elsewhere().compile(model, tmp_path / "out", lambda: [SAMPLE])
