"""Checkpoints do not grow with the epochs: rows lie beside them, and come back as they were."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ArtifactError
from nnpipe.experiment.state import AppendOnly
from nnpipe.training.checkpoints import LAST, RowFiles, read_checkpoint
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

ROWS = [
    {"epoch": 1, "loss": math.nan, "worst": np.arange(3)},
    {"epoch": 2, "loss": math.inf},
    "a line",
]


def test_rows_come_back_to_the_bit_and_only_new_ones_are_written(tmp_path: Path) -> None:
    files = RowFiles()
    first = files.put({"a": {"rows": AppendOnly(ROWS[:2])}, "b": 3}, tmp_path)
    path = tmp_path / "a.rows.jsonl"
    before = path.read_bytes()
    second = files.put({"a": {"rows": AppendOnly(ROWS)}, "b": 4}, tmp_path)
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == 3
    for word, rows in ((first, ROWS[:2]), (second, ROWS)):  # the older one is still whole
        found = RowFiles().take(word, tmp_path)["a"]["rows"]
        assert isinstance(found, AppendOnly)
        assert repr(found) == repr(rows)


def test_what_a_killed_run_wrote_behind_its_checkpoint_is_written_over(tmp_path: Path) -> None:
    word = RowFiles().put({"rows": AppendOnly([1, 2])}, tmp_path)
    with (tmp_path / "rows.jsonl").open("ab") as file:
        file.write(b'{"row":77}\n{"ro')
    files = RowFiles()
    assert files.take(word, tmp_path) == {"rows": [1, 2]}
    files.put({"rows": AppendOnly([1, 2, 3])}, tmp_path)
    assert (tmp_path / "rows.jsonl").read_text() == '{"row":1}\n{"row":2}\n{"row":3}\n'


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-4]),
            "not the rows that the checkpoint was made with",
        ),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"8")), "not the rows"),
        (lambda path: path.write_bytes(b"\x80\n" * 9), "not the rows"),
    ],
)
def test_rows_that_are_missing_or_others_are_told(
    damage: Any, message: str, tmp_path: Path
) -> None:
    word = RowFiles().put({"rows": AppendOnly([1, 2])}, tmp_path)
    damage(tmp_path / "rows.jsonl")
    with pytest.raises(ArtifactError, match=rf"rows\.jsonl: .*{message}"):
        RowFiles().take(word, tmp_path)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no name of a file of rows"):
        RowFiles().take({"rows": {"$rows": "../../etc/passwd", "count": 1, "sha256": ""}}, tmp_path)


@pytest.mark.slow
def test_a_checkpoint_after_many_epochs_is_as_large_as_after_a_few(tmp_path: Path) -> None:
    from nnpipe.training.callbacks.history import EpochSummary

    sizes = []
    for epochs in (4, 60):
        folder = tmp_path / str(epochs)
        trainer = Trainer(TrainerOptions(num_epochs=epochs), [EpochSummary()])
        trainer.fit(toys.fresh(), toys.sequences(32, 20), folder=folder)
        sizes.append((folder / "checkpoints" / LAST).stat().st_size)
        state = read_checkpoint(folder / "checkpoints" / LAST)
        assert len(state["fit"]["history"]["rows"]) == epochs
        assert len(state["callbacks"]["EpochSummary"]["state"]["lines"]) == epochs
    assert abs(sizes[1] - sizes[0]) < 200
