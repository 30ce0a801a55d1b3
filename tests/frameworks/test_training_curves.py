from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.frameworks.training_curves import write_training_curves
from nnpipe.testing._training import read_curves as read_curves
from nnpipe.testing.session import assert_one_line


def test_training_and_validation_are_two_runs_with_the_same_tags(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    with write_training_curves(tmp_path / "new" / "logs") as write:
        write(1, {"loss": 2.0, "accuracy": 0.25, "validation_loss": 3.0})
        assert len(read_curves(tmp_path)) == 3, "an epoch can be looked at while the next one runs"
        write(2, {"loss": 1.0, "accuracy": 0.5, "validation_loss": 2.5})
    assert read_curves(tmp_path / "new" / "logs") == {
        "train/loss": [2.0, 1.0],
        "train/accuracy": [0.25, 0.5],
        "validation/loss": [3.0, 2.5],
    }


def test_trainings_that_begin_at_once_keep_their_own_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    for value in (1.0, 2.0, 3.0):
        with write_training_curves(tmp_path) as write:
            write(1, {"loss": value})
    assert len(list((tmp_path / "train").iterdir())) == 3


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with write_training_curves(None) as write:
        write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="logs is a file") as caught, write_training_curves(path):
        pass
    assert_one_line(caught.value)
    assert path.read_text() == "mine"


def test_a_missing_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(MissingDependency, match="pip install tensorboardX") as caught,
        write_training_curves(tmp_path / "logs"),
    ):
        pass
    assert_one_line(caught.value)
    assert list(tmp_path.iterdir()) == []
