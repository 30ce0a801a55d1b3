"""The weights that a training leaves are those of the figures that it tells, in the model and in
its export.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.classification_report import ClassificationReport
from nnpipe.training.callbacks.samples import RandomSamples
from nnpipe.training.callbacks.selection import SkipEpochs
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

LOSS, ACCURACY = "blobs/test/loss", "blobs/test/label/accuracy"


class Seeing(Callback):
    """Keeps which weights there are at the end."""

    def on_fit_end(self, fit: Any) -> None:
        self.final, self.model = fit.final, toys.weights(fit.model)


def fit(folder: Path | None = None, **options: Any) -> Any:
    model, seeing = toys.fresh(), Seeing()
    asked = TrainerOptions.from_json({"num_epochs": 6, **options})
    history = Trainer(asked, (seeing,)).fit(
        model, toys.sequences(), folder=folder, optimiser=AdamW(rate=0.1)
    )
    return model, history, seeing.final


def measured(model: Any) -> dict[str, float]:
    return Trainer().evaluate(model, {"blobs": {"test": toys.sequences()["blobs"]["test"]}})


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({}, "last"),
        ({"ema_decay": 0.9}, "average"),
        ({"ema_decay": 0.9, "weights": "last"}, "last"),
        ({"weights": "best"}, "best"),
        ({"ema_decay": 0.9, "weights": "best"}, "best"),
        ({"ema_decay": 0.9, "evaluate_every": 4, "weights": "average"}, "average"),
    ],
)
def test_the_figures_told_are_those_of_the_weights(
    options: dict[str, Any], which: str, on_disk: bool, tmp_path: Path
) -> None:
    folder = tmp_path if on_disk else None
    model, history, final = fit(folder, **options)
    assert final.which == which
    assert dict(final.figures) == measured(model)
    best = int(np.nanargmin(history[LOSS])) + 1
    assert final.epoch == (best if which == "best" else 6)
    assert best < 6  # else the best are the last
    # the rows tell of the average, where there is one
    if which != "last" or "ema_decay" not in options:
        assert history[LOSS][final.epoch - 1] == final.figures[LOSS]
    if folder is not None:
        (told,) = json.loads((folder / "tables" / "final_weights.json").read_text())
        assert told == {"weights": which, "epoch": final.epoch, **measured(model)}


@pytest.mark.parametrize("options", [{"ema_decay": 0.9}, {"weights": "best"}])
def test_a_run_that_is_through_gives_the_same_weights_again_and_goes_on_from_its_own(
    options: dict[str, Any], tmp_path: Path
) -> None:
    model, _, final = fit(tmp_path / "a", **options)
    again, _, told = fit(tmp_path / "a", **options)
    assert toys.equal(toys.weights(again), toys.weights(model))
    assert told == final
    longer, history, _ = fit(tmp_path / "a", **options, num_epochs=8)
    whole, expected, _ = fit(tmp_path / "b", **options, num_epochs=8)
    assert toys.equal(toys.weights(longer), toys.weights(whole))
    assert list(history.rows()) == list(expected.rows())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"ema_decay": 0.9}, marks=pytest.mark.slow),
        {"ema_decay": 0.9, "weights": "best"},
    ],
)
def test_the_export_has_the_weights_that_the_report_shows(
    options: dict[str, Any], tmp_path: Path
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import onnxruntime

    from nnpipe.training.callbacks.onnx_export import OnnxExport

    asked = TrainerOptions.from_json({"num_epochs": 4, **options})
    seeing = Seeing()
    Trainer(asked, (OnnxExport(["x"]), seeing)).fit(
        toys.fresh(), toys.sequences(), folder=tmp_path, optimiser=AdamW(rate=0.05)
    )
    data = toys.sequences()["blobs"]["test"].arrays
    session = onnxruntime.InferenceSession(str(tmp_path / "model" / "model.onnx"))
    (logits,) = session.run(None, {"x": data["x"]})
    assert float((logits.argmax(1) == data["label"]).mean()) == pytest.approx(
        seeing.final.figures[ACCURACY]
    )
    wanted = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(data["label"])
    )
    assert float(wanted) == pytest.approx(seeing.final.figures[LOSS], rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.9}])
def test_callbacks_see_the_weights_that_the_row_tells_of(options: dict[str, Any]) -> None:
    class Watching(Callback):
        def __init__(self) -> None:
            self.measured: list[float] = []

        def on_epoch_end(self, fit: Any) -> None:
            self.measured.append(measured(fit.model)[ACCURACY])
            self.measured.append(measured(fit.model)[LOSS])

    watching = Watching()
    asked = TrainerOptions.from_json({"num_epochs": 3, **options})
    history = Trainer(asked, (watching,)).fit(
        toys.fresh(), toys.sequences(), optimiser=AdamW(rate=0.1)
    )
    told = [row[name] for row in history.rows() for name in (ACCURACY, LOSS)]
    assert watching.measured == pytest.approx(told)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"weights": "best"},
        {"ema_decay": 0.9, "weights": "last"},
        {"swa_start": 2},
        {"num_epochs": 2},
    ],
)
def test_files_that_describe_the_weights_are_of_those_that_the_model_has(
    options: dict[str, Any], wrapped: bool, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    report: Callback = ClassificationReport()
    if wrapped:
        report = SkipEpochs([report], every=2)
    seeing = Seeing()
    asked = TrainerOptions.from_json({"num_epochs": 6, **options})
    model = toys.fresh()
    Trainer(asked, (report, seeing)).fit(
        model, toys.sequences(), folder=tmp_path, optimiser=AdamW(rate=0.1)
    )
    assert seeing.final.epoch < 6 or "weights" not in options or options["weights"] == "last"
    rows = json.loads((tmp_path / "tables" / "classes-blobs-test-label.json").read_text())
    right = sum(row["predicted_as"][row["class"]] for row in rows)
    assert right / sum(row["samples"] for row in rows) == pytest.approx(measured(model)[ACCURACY])


def test_evaluating_with_callbacks_that_write_files_writes_none(tmp_path: Path) -> None:
    callbacks = (RandomSamples(), SkipEpochs([ClassificationReport()]), Seeing())
    figures = Trainer(TrainerOptions(), callbacks).evaluate(toys.fresh(), toys.sequences())
    assert LOSS in figures
    assert not [*tmp_path.iterdir()]


def test_an_average_that_nobody_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match="weights='average' needs ema_decay"):
        TrainerOptions(weights="average")


def test_the_best_of_nothing_is_refused_at_once() -> None:
    only = {"blobs": {"train": toys.sequences()["blobs"]["train"]}}
    for options in ({"weights": "best"}, {"patience": 2}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} needs a figure to watch"):
            Trainer(TrainerOptions.from_json(options), ()).fit(toys.fresh(), only)
