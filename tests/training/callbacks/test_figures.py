"""Callbacks that record figures: each against the same figure by hand, and over a kill."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import contextlib
import csv
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
import training_toys as toys
from sketches import sketching

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.callbacks._arrays import Trace
from nnpipe.training.callbacks.callback import Callback, is_write_due
from nnpipe.training.callbacks.history import EpochSummary, HistoryPlots
from nnpipe.training.callbacks.learning_rate import LearningRateRecorder
from nnpipe.training.callbacks.resource_monitor import NanWatch
from nnpipe.training.callbacks.run_page import RunPage
from nnpipe.training.callbacks.summaries import DatasetSummary, ModelSummary
from nnpipe.training.callbacks.weights import ActivationStatistics, GradientNorms, WeightStatistics
from nnpipe.training.optimization import Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def fit(
    folder: Path | None, *callbacks: Callback, model: Any = None, data: Any = None, **options: Any
) -> Any:
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    return Trainer(asked, callbacks).fit(
        model or toys.fresh(), data or toys.sequences(), folder=folder
    )


def table(folder: Path, name: str) -> Any:
    return json.loads((folder / "tables" / f"{name}.json").read_text())


def all_of_them() -> list[Callback]:
    return [
        HistoryPlots(),
        EpochSummary(),
        LearningRateRecorder(),
        GradientNorms(),
        WeightStatistics(),
        ActivationStatistics(),
        NanWatch(every=1),
        ModelSummary(),
        DatasetSummary(),
        RunPage(),
    ]


def files(folder: Path) -> dict[str, bytes]:
    """All files but checkpoints, and the summary with its times."""
    found = sorted(path for kind in ("tables", "pictures") for path in (folder / kind).iterdir())
    return {path.name: path.read_bytes() for path in found if path.name != "epochs.txt"}


class Killed(Exception):
    """Stands for a kill."""


class Kill(Callback):
    """Stops a training at a step as a kill would: no state is written."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        if fit.step == self._step:
            raise Killed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "drawing"),
    [pytest.param(3, contextlib.nullcontext, marks=pytest.mark.slow), (10, sketching)],
    ids=["3-rendered", "10-sketched"],
)
def test_a_killed_run_ends_with_the_same_files_as_an_undisturbed_one(
    tmp_path: Path, step: int, drawing: Any
) -> None:
    trained, whole = toys.fresh(), toys.fresh()
    with drawing():
        fit(tmp_path / "whole", *all_of_them(), model=whole, checkpoint_every=2)
        with pytest.raises(TrainingError, match="Killed"):
            fit(tmp_path / "killed", *all_of_them(), Kill(step), checkpoint_every=2)
        fit(tmp_path / "killed", *all_of_them(), model=trained, checkpoint_every=2)
    assert toys.equal(toys.weights(trained), toys.weights(whole))
    expected, found = files(tmp_path / "whole"), files(tmp_path / "killed")
    assert [name for name in expected if expected[name] != found.get(name)] == []
    assert len(expected) == 16


def test_looking_on_changes_nothing(tmp_path: Path) -> None:
    watched, alone = toys.fresh(), toys.fresh()
    with sketching():
        fit(tmp_path, *all_of_them(), model=watched)
    fit(None, model=alone)
    assert toys.equal(toys.weights(watched), toys.weights(alone))
    assert not any(layer._forward_hooks for layer in watched.modules())


@pytest.mark.slow
def test_more_epochs_make_no_more_files(tmp_path: Path) -> None:
    with sketching():
        fit(tmp_path / "1", *all_of_them(), num_epochs=1)
        fit(tmp_path / "5", *all_of_them(), num_epochs=5)
    assert files(tmp_path / "1").keys() == files(tmp_path / "5").keys()
    page = (tmp_path / "5" / "index.html").read_text()
    assert [name for name in files(tmp_path / "5") if name not in page] == []


def test_files_that_show_all_epochs_are_written_less_and_less_often() -> None:
    def written(last: int, **asked: Any) -> list[int]:
        options = TrainerOptions.from_json({"num_epochs": last} | asked)
        fit = SimpleNamespace(options=options, stopping="", step=0, final=None)
        found = []
        for fit.epoch in range(1, last + 1):
            fit.step += 1
            found += [fit.epoch] * is_write_due(fit)
        return found

    assert written(1234) == [*range(1, 101), *range(110, 1001, 10), 1100, 1200, 1234]
    assert len(written(100_000)) < 400
    # a Keras loop that goes on
    assert written(234, num_epochs=5) == [*range(1, 101), *range(110, 234, 10)]
    assert written(2000, max_steps=1111)[-1] == 2000
    assert 1111 in written(2000, max_steps=1111)


def test_what_writes_needs_a_folder() -> None:
    with pytest.raises(
        TrainingError, match=r"HistoryPlots writes files: give the training a folder"
    ) as caught:
        fit(None, HistoryPlots())
    assert isinstance(caught.value.__cause__, ConfigError)


def test_the_table_of_the_history_is_the_history(tmp_path: Path) -> None:
    history = fit(tmp_path, HistoryPlots(every=5), num_epochs=3)
    with (tmp_path / "tables" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["blobs/test/loss"]) for row in rows] == history["blobs/test/loss"].tolist()
    # A single output's loss is the whole one, and stands there once.
    assert [name for name in rows[0] if name.endswith("/loss")] == [
        "blobs/train/loss",
        "blobs/test/loss",
    ]


def test_the_epoch_summary_tells_figures_and_their_direction(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "nnpipe.training"):
        history = fit(tmp_path, EpochSummary())
    lines = (tmp_path / "tables" / "epochs.txt").read_text().splitlines()
    told = [record.message for record in caplog.records]
    assert told == [*lines, "the model has these weights: those of the last step, after epoch 2"]
    losses = history["blobs/train/loss"]
    assert losses[1] < losses[0]
    assert f"blobs/train/loss {losses[1]:.4g}↓" in lines[1]
    assert lines[0].startswith("epoch 1/2 *  step 7")


def test_rates_are_those_that_the_optimiser_used(tmp_path: Path) -> None:
    schedule, used = Cosine(warmup=3), []

    class Spy(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            used.append(self.param_groups[0]["lr"])
            return super().step(closure)

    options = TrainerOptions.from_json({"num_epochs": 2, "clip_norm": 0.1})
    trainer = Trainer(options, [LearningRateRecorder()])
    trainer.fit(
        toys.fresh(),
        toys.sequences(),
        folder=tmp_path,
        schedule=schedule,
        optimiser=lambda p: Spy(p, lr=0.01),
    )
    rows = table(tmp_path, "learning_rate")
    assert [row["rates"] for row in rows] == [[rate] for rate in used]
    assert [row["step"] for row in rows] == list(range(1, 15))


def test_gradient_norms_are_those_of_the_gradients(tmp_path: Path) -> None:
    norms: list[dict[str, float]] = []

    class ByHand(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            norms.append({name: float(p.grad.norm()) for name, p in fit.model.named_parameters()})

    fit(tmp_path, GradientNorms(), ByHand(), num_epochs=1, clip_norm=0.5)
    (row,) = table(tmp_path, "gradients")
    for name in norms[0]:
        assert row["mean"][name] == pytest.approx(np.mean([n[name] for n in norms]), rel=1e-5)
        assert row["greatest"][name] == pytest.approx(max(n[name] for n in norms), rel=1e-5)
    # Clipped: no step's norm is above the limit.
    assert all(np.sqrt(sum(v**2 for v in n.values())) < 0.5001 for n in norms)


@pytest.mark.slow
def test_statistics_of_weights_and_activations(tmp_path: Path) -> None:
    model = toys.fresh()
    fit(tmp_path, WeightStatistics(), ActivationStatistics(), model=model)
    weights = table(tmp_path, "weights")[-1]["weights"]["layers.0.weight"]
    own = model.layers[0].weight.detach().numpy()
    assert weights["mean"] == pytest.approx(own.mean(), rel=1e-4)
    assert weights["deviation"] == pytest.approx(own.std(), rel=1e-4)
    assert (weights["least"], weights["greatest"]) == (own.min(), own.max())
    rows = table(tmp_path, "activations")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert 0.2 < rows[0]["layers"]["layers.2"]["zeros"] < 0.8  # a ReLU
    # batch normalisation
    assert rows[0]["layers"]["layers.1"]["mean"] == pytest.approx(0, abs=1e-5)
    assert rows[0]["layers"]["layers.1"]["deviation"] == pytest.approx(1, abs=1e-2)


def test_the_layer_where_nan_comes_up_is_named(caplog: Any) -> None:
    model = toys.fresh()
    with torch.no_grad():
        model.layers[4].weight[1, 2] = float("inf")
    with pytest.raises(TrainingError, match="diverged"):
        fit(None, NanWatch(), model=model)
    assert "the first layer whose output is not finite is layers.4" in caplog.text


def test_a_gradient_that_is_not_finite_stops_it_though_the_loss_is_good() -> None:
    class Root(toys.Net):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.zeros(()))

        def forward(self, batch: Any) -> Any:
            found = super().forward(batch)
            # its slope at 0 is infinite
            found["label"].output = found["label"].output + self.scale.abs().sqrt()
            return found

    with pytest.raises(TrainingError, match=r"NanWatch.*step 1, samples .*gradient of scale"):
        fit(None, NanWatch(every=1), model=Root())


def test_the_model_summary_has_shapes_and_counts(tmp_path: Path) -> None:
    model = toys.fresh()
    model.layers[4].bias.requires_grad_(False)
    fit(tmp_path, ModelSummary(), model=model)
    rows = table(tmp_path, "model")
    assert [(r["layer"], r["output"], r["parameters"]) for r in rows] == [
        ("layers.0", [16, 16], 8 * 16 + 16),
        ("layers.1", [16, 16], 32),
        ("layers.2", [16, 16], 0),
        ("layers.3", [16, 16], 0),
        ("layers.4", [16, 3], 16 * 3 + 3),
    ]
    assert (
        (tmp_path / "tables" / "model.txt")
        .read_text()
        .endswith("227 parameters, 224 of them trainable\n")
    )


def test_the_dataset_summary_agrees_with_numpy(tmp_path: Path) -> None:
    fit(tmp_path, DatasetSummary())
    data = toys.blobs(100)
    train, test = table(tmp_path, "datasets")
    assert (train["split"], train["samples"], test["split"], test["samples"]) == (
        "blobs/train",
        100,
        "blobs/test",
        50,
    )
    x = train["features"]["x"]
    assert (x["type"], x["shape"]) == ("float32", [8])
    assert [x["mean"], x["deviation"]] == pytest.approx(
        [data["x"].mean(), data["x"].std()], rel=1e-4
    )
    assert [x["least"], x["greatest"]] == [float(data["x"].min()), float(data["x"].max())]
    counts = np.bincount(data["label"])
    assert train["features"]["label"]["classes"] == {str(n): int(c) for n, c in enumerate(counts)}


def test_a_trace_keeps_a_bounded_number_of_steps() -> None:
    trace = Trace(most=10)
    for step in range(1, 100):
        trace.add(step, torch.tensor(float(step)))
        trace.add(step, torch.tensor(-1.0))
    trace.fetch()
    assert trace.steps == [1, 17, 33, 49, 65, 81, 97]
    assert trace.values == [float(step) for step in trace.steps]


def test_the_rates_of_a_long_training_end_with_its_last_step(tmp_path: Path) -> None:
    recorder = LearningRateRecorder()
    recorder.trace = Trace(most=4)
    with sketching():
        fit(tmp_path, recorder)
    rows = json.loads((tmp_path / "tables" / "learning_rate.json").read_text())
    assert rows[0]["step"] == 1
    assert rows[-1]["step"] == fit(None, num_epochs=2)["step"].tolist()[-1]
    assert len(rows) <= 5
