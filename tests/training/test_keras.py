"""Trainings of Keras models, looked on by our callbacks: digits, for real."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
from sketches import sketching

from nnpipe.core.errors import ComponentNotFound, ConfigError, TrainingError
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.classification.small_cnn import TensorFlowDigitsCNN
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.classification_report import ClassificationReport
from nnpipe.training.callbacks.history import HistoryPlots
from nnpipe.training.callbacks.learning_rate import LearningRateRecorder
from nnpipe.training.callbacks.resource_monitor import NanWatch
from nnpipe.training.callbacks.run_page import RunPage
from nnpipe.training.callbacks.sample_losses import WorstSamples
from nnpipe.training.callbacks.samples import RandomSamples
from nnpipe.training.callbacks.selection import choose, find_callback_classes
from nnpipe.training.callbacks.summaries import DatasetSummary
from nnpipe.training.callbacks.weights import GradientNorms
from nnpipe.training.fit import TrainingRun
from nnpipe.training.keras_callback import keras_callback, make_classifier_judge
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_status import read_status
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer

needs("tensorflow")

WRONG = {300: 1, 800: 5}


def options(**more: Any) -> TrainingOptions:
    return TrainingOptions.from_json(
        {"num_epochs": 3, "batch_size": 64, "learning_rate": 0.005, **more}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return the folder of a training with the default callbacks, and its history."""
    folder = tmp_path_factory.mktemp("run")
    model = TensorFlowDigitsCNN().open()
    with sketching():
        return folder, model.train(
            DigitsDataset(),
            options(run_folder=str(folder), callbacks=["TensorBoard", "default", "NanWatch"]),
        )


@pytest.mark.slow
def test_a_keras_wrapper_leaves_a_run_folder_with_its_page(run: tuple[Path, Any]) -> None:
    folder, history = run
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names >= {
        "index.html",
        "status.json",
        "checkpoints/last.state",
        "checkpoints/best.state",
        "source/source.zip",
        "tables/history.csv",
        "tables/epochs.txt",
        "tables/model.txt",
        "tables/datasets.json",
        "tables/learning_rate.json",
        "tables/worst-data-train.json",
        "tables/worst-data-validation.json",
        "tables/classes-data-validation-output.json",
        "tables/confusions-data-validation-output.json",
        "pictures/history.png",
        "pictures/learning_rate.png",
        "pictures/samples-data-train.png",
        "pictures/confusion-data-validation-output.png",
        "pictures/roc-data-validation-output.png",
        "pictures/worst-data-train.png",
        "pictures/worst-data-train-samples.png",
    }
    page = (folder / "index.html").read_text()
    assert all(name in page for name in names if name.startswith("pictures/"))
    rows = list(csv.DictReader((folder / "tables" / "history.csv").read_text().splitlines()))
    assert [float(row["data/validation/output/accuracy"]) for row in rows] == [
        epoch["validation_accuracy"] for epoch in history.epochs
    ]
    assert history.epochs[-1]["validation_accuracy"] > 0.9


def test_its_tables_agree_with_the_data_and_the_history(run: tuple[Path, Any]) -> None:
    folder, history = run

    def table(name: str) -> Any:
        return json.loads((folder / "tables" / f"{name}.json").read_text())

    dataset = DigitsDataset()
    dataset.prepare()
    _, truth = dataset.read(dataset.split("train"))
    counted = table("datasets")[0]
    assert counted["samples"] == len(dataset.split("train"))
    classes = counted["features"]["truth/label"]["classes"]
    assert list(classes.values()) == np.bincount(truth["label"]).tolist()
    rows = table("classes-data-validation-output")
    hits = sum(row["predicted_as"][row["class"]] for row in rows)
    samples = sum(row["samples"] for row in rows)
    assert hits / samples == pytest.approx(history.epochs[-1]["validation_accuracy"])
    assert all(row["auc"] > 0.95 for row in rows)
    confused = sum(row["count"] for row in table("confusions-data-validation-output"))
    assert confused == samples - hits
    rates = [row["rates"][0] for row in table("learning_rate")]
    steps = 3 * (len(dataset.split("train")) // 64 + 1)
    assert len(rates) == steps
    expected = [0.005 * 0.5 * (1 + np.cos(np.pi * step / steps)) for step in range(steps)]
    np.testing.assert_allclose(rates, expected, rtol=1e-4, atol=1e-8)
    assert (
        (folder / "tables" / "model.txt")
        .read_text()
        .endswith("66,218 parameters, 65,834 of them trainable\n")
    )


def test_tensorboard_reads_its_figures_and_pictures(run: tuple[Path, Any]) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed",
    )
    folder, history = run
    found = accumulators.EventAccumulator(
        str(folder / "tensorboard"), {"scalars": 0, "tensors": 0, "images": 0}
    ).Reload()
    values = [event.value for event in found.Scalars("data/validation/output/accuracy")]
    assert values == pytest.approx([epoch["validation_accuracy"] for epoch in history.epochs])
    assert sorted(found.Tags()["images"]) == sorted(
        path.stem for path in (folder / "pictures").iterdir()
    )


@pytest.mark.slow
def test_looking_on_changes_nothing(run: tuple[Path, Any]) -> None:
    assert TensorFlowDigitsCNN().open().train(DigitsDataset(), options()) == run[1]


def test_what_needs_pytorch_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="GradientNorms supports only torch; this training uses keras"
    ):
        TensorFlowDigitsCNN().open().train(
            DigitsDataset(), options(run_folder=str(tmp_path), callbacks=["GradientNorms"])
        )
    look = keras_callback([HistoryPlots(), GradientNorms()], folder=tmp_path)
    with pytest.raises(ConfigError, match="GradientNorms supports only torch"):
        fitted(look, epochs=1)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(ConfigError, match="Raises supports only keras; this training uses torch"):
        Trainer(callbacks=[Raises()]).fit(torch.nn.Linear(1, 1), splits())
    refused = {
        name for name, cls in find_callback_classes().items() if "keras" not in cls.frameworks
    }
    assert refused >= {
        "ActivationStatistics",
        "GradientNorms",
        "Explanations",
        "OnnxExport",
        "Kernels",
        "ProfilerTrace",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "ModelSumary",
            r"no Callback is called 'ModelSumary'; did you mean nnpipe\.training\..*\.ModelSummary",
        ),
        ("os.path.join", "os.path.join is not a Callback"),
        ("nowhere.Callback", "no Callback is called 'nowhere.Callback'"),
        ("defalt", "no callback is called 'defalt'; did you mean default"),
        (
            "SourceSnapshot",
            "SourceSnapshot needs folders, which is not known here: write "
            "SourceSnapshot:folders=VALUE",
        ),
        ("NanWatch:evry=5", "NanWatch has no option 'evry'; did you mean every"),
        ("RunPage:every=5", "RunPage has no option 'every'; it has none"),
        ("NanWatch:5", r"NanWatch: '5' is no option; write NAME=VALUE"),
        ("NanWatch:every=often", "NanWatch: every takes a whole number, not 'often'"),
    ],
)
def test_names_that_lead_nowhere_are_told(name: str, message: str) -> None:
    with pytest.raises((ConfigError, ComponentNotFound), match=message):
        choose([name], framework="keras", known={})


CODE = """
import sys
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.classification.small_cnn import TensorFlowDigitsCNN
options = {"num_epochs": 3, "batch_size": 64, "learning_rate": 0.005, "run_folder": sys.argv[1]}
options["callbacks"] = ["default", "NanWatch"]
TensorFlowDigitsCNN().open().train(DigitsDataset(), TrainingOptions.from_json(options))
"""


@pytest.mark.slow  # two more starts of TensorFlow
def test_a_killed_run_ends_with_the_files_of_an_undisturbed_one(
    run: tuple[Path, Any], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while (
        not (tmp_path / "checkpoints" / "last.state").exists()
        and first.poll() is None
        and time.monotonic() < end
    ):
        time.sleep(0.01)
    first.kill()
    assert first.wait(10) == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=600, env=os.environ)
    for path in sorted((tmp_path / "tables").glob("*")):
        if path.name != "epochs.txt":  # tells times
            assert path.read_bytes() == (run[0] / "tables" / path.name).read_bytes(), path.name
    best = Path("checkpoints", "best.state")
    assert (tmp_path / best).read_bytes() == (run[0] / best).read_bytes()
    for kind in ("pictures", "tables", "checkpoints"):
        assert [p.name for p in sorted((tmp_path / kind).glob("*"))] == [
            p.name for p in sorted((run[0] / kind).glob("*"))
        ]


# -- any model, by Keras's own fit ---------------------------------------------------------------


def digits() -> tuple[Any, Any]:
    dataset = DigitsDataset()
    dataset.prepare()
    inputs, truth = dataset.read(np.arange(len(dataset)))
    return inputs["image"].astype(np.float32) / 16, truth["label"]


def model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(10, "softmax"),
    ]
    made = keras.Sequential([keras.Input((8, 8, 1)), *layers])
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def fitted(look: Any, epochs: int, net: Any = None) -> Any:
    x, y = digits()
    net = net or model()
    with look:
        done = look.restore(net)
        net.fit(
            x[:1200],
            y[:1200],
            batch_size=64,
            epochs=epochs,
            initial_epoch=done,
            verbose=0,
            callbacks=[look],
        )
    return net


def splits(*, planted: bool = False) -> dict[str, dict[str, ArraySequence]]:
    x, y = digits()
    y = y.copy()
    if planted:
        for sample, shift in WRONG.items():
            y[sample] = (y[sample] + shift) % 10
    return {
        "digits": {
            "train": ArraySequence({"image": x[:1200], "label": y[:1200]}, batch=256),
            "test": ArraySequence({"image": x[1200:], "label": y[1200:]}, batch=256),
        }
    }


@pytest.mark.slow
def test_callbacks_look_on_a_fit_of_keras(tmp_path: Path) -> None:
    watched: list[Callback] = [
        DatasetSummary(),
        HistoryPlots(),
        LearningRateRecorder(),
        RandomSamples(),
        ClassificationReport(),
        WorstSamples(count=5),
        NanWatch(),
        RunPage(),
    ]
    look = keras_callback(
        watched, splits(planted=True), make_classifier_judge("image"), folder=tmp_path
    )
    with sketching():
        net = fitted(look, epochs=8)
    row = look.training.fit.history.last
    _, accuracy = net.evaluate(*(a[1200:] for a in digits()), verbose=0)
    assert row["digits/test/output/accuracy"] == pytest.approx(accuracy)
    assert row["step"] == 8 * 19
    worst = json.loads((tmp_path / "tables" / "worst-digits-train.json").read_text())
    assert {row["sample_id"] for row in worst[:2]} == set(WRONG)
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "pictures" / "worst-digits-train-samples.png").exists()


def test_an_average_that_keras_keeps_by_itself_is_refused(tmp_path: Path) -> None:
    import keras

    look = keras_callback(
        [HistoryPlots()], splits(), make_classifier_judge("image"), folder=tmp_path
    )
    net = model()
    net.compile(keras.optimizers.Adam(use_ema=True), "sparse_categorical_crossentropy")
    images, labels = digits()
    with pytest.raises(ConfigError, match=r"Adam keeps an average of the weights \(use_ema\)"):
        net.fit(images[:64], labels[:64], epochs=1, verbose=0, callbacks=[look])


@pytest.mark.slow
def test_a_fit_of_keras_goes_on_from_its_folder(tmp_path: Path) -> None:
    first = keras_callback(
        [HistoryPlots()], splits(), make_classifier_judge("image"), folder=tmp_path
    )
    weights = fitted(first, epochs=2).get_weights()
    again = keras_callback(
        [HistoryPlots()], splits(), make_classifier_judge("image"), folder=tmp_path
    )
    other = model()
    assert again.restore(other) == 2
    for one, two in zip(weights, other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    fitted(again, epochs=3, net=other)
    rows = list(csv.DictReader((tmp_path / "tables" / "history.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    status = read_status(RunFolder(tmp_path))
    assert status is not None
    assert (status.state, status.epoch, status.reason) == ("completed", 3, "")


def test_a_fit_of_keras_that_fails_says_so_in_its_folder(tmp_path: Path) -> None:
    look = keras_callback(
        [HistoryPlots()], splits(), make_classifier_judge("image"), folder=tmp_path
    )
    net = model()

    def fail() -> None:
        with look:
            look.restore(net)
            begun = read_status(RunFolder(tmp_path))
            assert begun is not None
            assert begun.state == "running"
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        fail()
    status = read_status(RunFolder(tmp_path))
    assert status is not None
    assert (status.state, status.reason) == ("failed", "ValueError: no luck")


class Raises(Callback):
    """Fails at the second step."""

    frameworks = ("keras",)
    closed = False

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        if fit.step == 2:
            raise ZeroDivisionError("here")

    def close(self) -> None:
        self.closed = True


def test_a_callback_that_raises_stops_it_by_name_and_is_closed() -> None:
    raises = Raises()
    with pytest.raises(
        TrainingError, match=r"callback Raises\.on_batch_end failed in epoch 1, step 2.*here"
    ):
        fitted(keras_callback([raises]), epochs=1)
    assert raises.closed


def test_nan_watch_names_the_weight() -> None:
    net = model()
    net.layers[1].kernel.assign(np.full((64, 64), np.nan))
    with pytest.raises(TrainingError, match=r"the weight \S*kernel.* is not finite"):
        fitted(keras_callback([NanWatch(every=1)]), epochs=1, net=net)


def test_early_stopping_ends_a_fit_of_keras() -> None:
    asked = TrainerOptions(
        patience=1, monitor="fit/train/accuracy", monitor_mode="max", min_delta=1.0
    )
    look = keras_callback([], options=asked)
    fitted(look, epochs=9)
    assert len(look.training.fit.history) == 2
    assert "did not get better" in look.training.fit.stopping


@pytest.mark.parametrize(
    "monitor", ["digits/tset/loss", "digits/test/acuracy", "digits/test/output/acuracy", "nothing"]
)
def test_a_figure_that_there_will_not_be_is_told_before_the_first_epoch(monitor: str) -> None:
    look = keras_callback(
        [], splits(), make_classifier_judge("image"), options=TrainerOptions(monitor=monitor)
    )
    net = model()
    before = [np.array(weight) for weight in net.get_weights()]
    with pytest.raises(ConfigError, match=f"no figure '{monitor}' to monitor; there are digits/t"):
        fitted(look, epochs=1, net=net)
    assert all(
        np.array_equal(one, other) for one, other in zip(before, net.get_weights(), strict=True)
    )


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_best_weights_stay_where_asked_for(on_disk: bool, tmp_path: Path) -> None:
    # the first epoch's
    asked = TrainerOptions(weights="best", monitor="digits/test/loss", monitor_mode="max")
    net, data = model(), splits()
    look = keras_callback(
        [],
        data,
        make_classifier_judge("image"),
        options=asked,
        folder=tmp_path if on_disk else None,
    )
    fitted(look, epochs=3, net=net)
    final = look.training.fit.final
    losses = look.training.fit.history["digits/test/loss"]
    assert (final.which, final.epoch) == ("best", int(np.argmax(losses)) + 1)
    judge, total, count = make_classifier_judge("image"), 0.0, 0
    for batch in data["digits"]["test"]:
        found = judge(net, batch)["output"].losses
        total, count = total + float(found.sum()), count + len(found)
    assert total / count == pytest.approx(final.figures["digits/test/loss"], rel=1e-6)


def test_a_sigmoid_is_judged_as_yes_or_no() -> None:
    import keras

    class Half:
        def __call__(self, given: Any, training: bool) -> Any:
            return keras.ops.full((len(given), 1), 0.25)

    output = make_classifier_judge("x")(
        Half(), {"x": np.zeros((3, 2)), "label": np.array([0, 1, 1])}
    )["output"]
    assert output.predictions().tolist() == [0, 0, 0]
    assert output.losses.tolist() == pytest.approx(
        [-np.log(0.75), -np.log(0.25), -np.log(0.25)], rel=1e-5
    )


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnpipe.training.checkpoints import RowFiles, read_weights

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.setattr(RowFiles, "put", full)
    net = model()
    with pytest.raises(
        TrainingError,
        match=r"run cannot be written: No space left on device; the weights .* kept as",
    ):
        fitted(keras_callback([], folder=tmp_path / "run"), epochs=2, net=net)
    (kept,) = (tmp_path / "other").rglob("rescued.state")
    found = read_weights(kept).values()
    assert all(
        np.array_equal(one, other.numpy()) for one, other in zip(found, net.weights, strict=True)
    )
