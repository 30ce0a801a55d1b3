"""Explanations against what must hold of them; source and profile."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pytest
from installed import needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
needs("sklearn")
import digit_toys as digits
import training_toys as toys

from nnpipe.training.callbacks.explanations import Explanations, explain
from nnpipe.training.callbacks.profiler import ProfilerTrace
from nnpipe.training.callbacks.source_snapshot import SourceSnapshot
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def test_integrated_gradients_add_up_to_the_difference_of_the_logits(tmp_path: Path) -> None:
    pytest.importorskip("captum", reason="captum is not installed")
    model = digits.model()
    trainer = Trainer(TrainerOptions(num_epochs=2), [Explanations("image", "digit", 4)])
    trainer.fit(model, digits.sequences(128, 40), folder=tmp_path)
    assert (tmp_path / "pictures" / "explanations-digits-test.png").is_file()
    batch = {name: torch.from_numpy(value) for name, value in digits.arrays(0, 4).items()}
    assert explain(model, batch, "image", "other") is None
    explained = explain(model, batch, "image", "digit")
    assert explained is not None
    said, maps, gradients = explained
    with torch.no_grad():
        there = model(batch)["digit"].output.numpy()
        black = model(batch | {"image": torch.zeros(4, 1, 8, 8)})["digit"].output.numpy()
    for place in range(4):
        expected = there[place, said[place]] - black[place, said[place]]
        assert gradients[place].sum() == pytest.approx(expected, abs=0.02 * float(abs(there).max()))
    assert maps.shape == (4, 8, 8)
    assert maps.min() >= 0 < maps.max()


def test_explaining_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("captum", reason="captum is not installed")
    watched, alone = digits.model(), digits.model()
    for model, callbacks in ((watched, [Explanations("image", "digit", 2), ProfilerTrace()]), (alone, [])):
        Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
            model, digits.sequences(64, 20), folder=tmp_path / "a", resume=False
        )
    assert toys.equal(toys.weights(watched), toys.weights(alone))


def test_a_profile_is_a_trace_and_a_table(tmp_path: Path) -> None:
    callbacks = [ProfilerTrace(skip=1, batches=2)]
    Trainer(TrainerOptions(num_epochs=1), callbacks).fit(toys.fresh(), toys.sequences(), folder=tmp_path)
    with gzip.open(tmp_path / "profile" / "trace.json.gz") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("Optimizer.step#AdamW.step") == 2
    assert "aten::addmm" in (tmp_path / "tables" / "profile.txt").read_text()
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["trace.json.gz"]


def test_a_snapshot_holds_the_source_and_is_the_same_for_the_same(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    for name in ("a.py", "b/c.py", ".git/d.py", "data.bin", "e.yaml"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    archives = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        callbacks = [SourceSnapshot([source, source / "data.bin"])]
        Trainer(TrainerOptions(num_epochs=1), callbacks).fit(toys.fresh(), toys.sequences(), folder=folder)
        archives.append((folder / "source" / "source.zip").read_bytes())
    assert archives[0] == archives[1]
    with zipfile.ZipFile(tmp_path / "1" / "source" / "source.zip") as archive:
        assert archive.namelist() == ["0-mine/a.py", "0-mine/b/c.py", "0-mine/e.yaml", "1-data.bin"]
        assert archive.read("0-mine/b/c.py") == b"b/c.py"
