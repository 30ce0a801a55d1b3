"""The contract holds for an honest runtime and catches each way of breaking it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.testing.fakes import ECHO_IO, FakeSession
from nnpipe.testing.runtime import DAMAGES, RuntimeContract


class Scaler(Runtime):
    """Multiplies by the number that the file holds."""

    requires: ClassVar[tuple[str, ...]] = ("wave",)  # any module that is always there
    accepts: ClassVar[tuple[str, ...]] = ("scale",)

    def _load(self, artifact: Artifact) -> InferenceSession:
        factor = self.factor(artifact.path)
        if artifact.io != ECHO_IO:
            raise ArtifactError(f"{artifact.path}: its tensors are x and y, four numbers each")
        return FakeSession(
            artifact.io, function=lambda array: np.asarray(array * np.float32(factor))
        )

    def factor(self, path: Path) -> float:
        try:
            return float(json.loads(path.read_text("utf-8"))["factor"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{path}: no factor in here ({type(error).__name__})") from None


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return scale(tmp_path)


def scale(folder: Path) -> Artifact:
    path = folder / "model.scale"
    path.write_text(json.dumps({"factor": 2.5}))
    return Artifact.create(path, "scale", ECHO_IO)


class TestScaler(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return Scaler()

    @pytest.fixture
    def artifact(self, artifact: Artifact) -> Artifact:
        return artifact

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return {"y": batch["x"] * np.float32(2.5)}


class Wrong(Scaler):
    """Computes something else."""

    def factor(self, path: Path) -> float:
        return super().factor(path) + 0.01


class Omnivorous(Scaler):
    """Takes every format."""

    def load(self, artifact: Artifact) -> InferenceSession:
        self.check_installed()
        return self._load(artifact)


class Unprepared(Scaler):
    """Does not look whether its package is there."""

    def load(self, artifact: Artifact) -> InferenceSession:
        if artifact.format not in self.accepts:
            return super().load(artifact)
        return self._load(artifact)


class Raw(Scaler):
    """Lets the parser's errors out."""

    def factor(self, path: Path) -> float:
        return float(json.loads(path.read_bytes())["factor"])


class Nameless(Scaler):
    """Does not say which file is damaged."""

    def factor(self, path: Path) -> float:
        try:
            return super().factor(path)
        except ArtifactError:
            raise ArtifactError("no factor") from None


class Trusting(Scaler):
    """Believes any description."""

    def _load(self, artifact: Artifact) -> InferenceSession:
        factor = self.factor(artifact.path)
        return FakeSession(
            artifact.io, function=lambda array: np.asarray(array * np.float32(factor))
        )


class Caching(Scaler):
    """Writes beside the file."""

    def _load(self, artifact: Artifact) -> InferenceSession:
        artifact.path.with_suffix(".cache").touch()
        return super()._load(artifact)


BROKEN = [
    (Wrong, "test_the_results_are_those_expected", DAMAGES),
    (Omnivorous, "test_another_format_is_refused_in_one_line", DAMAGES),
    (Unprepared, "test_a_missing_package_says_what_to_install", DAMAGES),
    (Raw, "test_a_damaged_file_is_named_in_one_line", ("half",)),
    (Raw, "test_a_damaged_file_is_named_in_one_line", ("noise",)),
    (Raw, "test_a_missing_file_is_named_in_one_line", DAMAGES),
    (Nameless, "test_a_damaged_file_is_named_in_one_line", ("empty",)),
    (Nameless, "test_a_missing_file_is_named_in_one_line", DAMAGES),
    (Trusting, "test_a_description_that_contradicts_the_file_is_refused_in_one_line", DAMAGES),
    (Caching, "test_loading_leaves_the_file_alone", DAMAGES),
]


@pytest.mark.parametrize(
    ("broken", "test", "damages"), BROKEN, ids=[f"{b.__name__}-{t[5:]}" for b, t, _ in BROKEN]
)
def test_a_runtime_that_breaks_the_contract_is_caught(
    broken: type[Scaler],
    test: str,
    damages: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = generate_random_batch(ECHO_IO, 2)
    for cls, caught in ((Scaler, False), (broken, True)):
        folder = tmp_path / cls.__name__
        folder.mkdir()
        with monkeypatch.context() as patch:
            given: dict[str, Any] = {
                "runtime": cls(),
                "artifact": scale(folder),
                "batch": batch,
                "tmp_path": folder,
            }
            given |= {"expected": {"y": batch["x"] * np.float32(2.5)}, "monkeypatch": patch}
            patch.setattr("nnpipe.testing.runtime.DAMAGES", damages)
            assert fails(test, given) == caught, cls.__name__


def fails(test: str, given: dict[str, Any]) -> bool:
    """Run one test of the contract with its fixtures."""
    method = getattr(RuntimeContract(), test)
    try:
        method(**{name: given[name] for name in inspect.signature(method).parameters})
    except (Exception, pytest.fail.Exception):
        return True
    return False
