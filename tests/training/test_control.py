"""Where epochs and trainings end, what happens when they diverge, and what the final weights
are.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import copy
import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.training._forward import recompute_activations
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.history import BestFigures
from nnpipe.training.checkpoints import read_weights
from nnpipe.training.optimization import SGD, AdamW, Cosine, Milestones, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_status import read_status
from nnpipe.training.trainer import Trainer


def fit(
    model: Any, *callbacks: Callback, data: Any = None, samples: int = 100, **options: Any
) -> Any:
    """Train for two epochs of seven steps, or as said; 48 samples make three steps."""
    kept = {
        name: options.pop(name)
        for name in ("folder", "optimiser", "schedule", "step")
        if name in options
    }
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    return Trainer(asked, callbacks).fit(
        model, data or toys.sequences(samples), **{"optimiser": AdamW(rate=0.01), **kept}
    )


def interrupted(folder: Path, *steps: int, **options: Any) -> Any:
    """Train, interrupted at some steps and begun again each time; return the weights and the
    rows.
    """
    for step in steps:
        with suppress(KeyboardInterrupt):
            fit(toys.fresh(), toys.Interrupting(step), folder=folder, **options)
    model = toys.fresh()
    history = fit(model, folder=folder, **options)
    return toys.weights(model), list(history.rows())


def states(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "checkpoints").glob("*.state")}


# -- the ends of epochs ---------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch_steps", "epochs"), [(3, 7), (7, 3), (21, 1)])
def test_an_epoch_of_some_steps_ends_anywhere_in_the_data(epoch_steps: int, epochs: int) -> None:
    cut, whole = toys.fresh(), toys.fresh()
    history = fit(cut, epoch_steps=epoch_steps, num_epochs=epochs, schedule=Cosine())
    expected = fit(whole, num_epochs=3, schedule=Cosine())
    assert toys.equal(toys.weights(cut), toys.weights(whole))
    assert history["step"].tolist() == [epoch_steps * (n + 1) for n in range(epochs)]
    assert history.last["blobs/test/loss"] == expected.last["blobs/test/loss"]
    if epochs == 7:
        sizes = [16] * 6 + [4]
        losses = history["blobs/train/loss"]
        assert len(set(losses)) == epochs
        # The epochs 1 to 7 have, together, seen the samples of three passes.
        samples = [sum((sizes * 3)[3 * n : 3 * n + 3]) for n in range(7)]
        assert (losses * samples).sum() == pytest.approx(100 * expected["blobs/train/loss"].sum())


@pytest.mark.parametrize("checkpoint_every", [0, 2])
def test_such_a_training_goes_on_to_the_bit(checkpoint_every: int, tmp_path: Path) -> None:
    options = {
        "epoch_steps": 3,
        "num_epochs": 6,
        "checkpoint_every": checkpoint_every,
        "ema_decay": 0.9,
    }
    weights, rows = interrupted(tmp_path / "one", **options)
    again, resumed = interrupted(tmp_path / "two", 4, 9, 11, 17, **options)
    assert toys.equal(weights, again)
    assert rows == resumed
    assert states(tmp_path / "one") == states(tmp_path / "two")


def test_an_epoch_in_which_nothing_is_learned_does_not_last_for_ever() -> None:
    with pytest.raises(ConfigError, match="no batch of a whole pass through the data made a step"):
        fit(toys.fresh(), epoch_steps=3, step=lambda fit, batch: None)


def test_a_number_of_steps_ends_a_training_that_can_be_extended_to_the_bit(tmp_path: Path) -> None:
    model, whole = toys.fresh(), toys.fresh()
    history = fit(model, max_steps=10, folder=tmp_path)
    assert history["step"].tolist() == [7, 10]
    assert "blobs/test/loss" in history.last
    longer = fit(model, folder=tmp_path)
    expected = fit(whole)
    assert toys.equal(toys.weights(model), toys.weights(whole))
    assert list(longer.rows()) == list(expected.rows())


@pytest.mark.parametrize("keep_best", [1, 2])
def test_a_training_extended_several_times_has_the_epochs_and_best_weights_of_one_run(
    keep_best: int, tmp_path: Path
) -> None:
    options = {
        "num_epochs": 6,
        "weights": "best",
        "keep_best": keep_best,
        "optimiser": AdamW(rate=0.1),
    }
    expected = fit(whole := toys.fresh(), folder=tmp_path / "whole", **options)
    for steps in (1, 3, 10, 14, 23, 23, 40, 42):
        history = fit(model := toys.fresh(), folder=tmp_path / "cut", max_steps=steps, **options)
        assert history["epoch"].tolist() == [*range(1, -(-steps // 7) + 1)]
        assert history["step"].tolist()[-1] == steps
    assert list(history.rows()) == list(expected.rows())
    assert toys.equal(toys.weights(model), toys.weights(whole))
    cut, uncut = states(tmp_path / "cut"), states(tmp_path / "whole")
    assert cut["best.state"] == uncut["best.state"]
    assert {name for name in cut if name.startswith("best-0")} == {
        name for name in uncut if name.startswith("best-0")
    }


def test_a_schedule_ends_with_the_number_of_steps() -> None:
    history = fit(toys.fresh(), max_steps=10, schedule=Cosine(), optimiser=SGD(rate=1.0))
    assert history.last["learning_rate"] == pytest.approx(
        0.5 * (1 + torch.cos(torch.tensor(0.9 * torch.pi)).item())
    )


def test_time_stops_a_training_with_a_checkpoint_from_which_it_goes_on_to_the_bit(
    tmp_path: Path,
) -> None:
    expected, rows = interrupted(tmp_path / "one", samples=48)
    folder, steps = tmp_path / "two", []
    for _ in range(20):
        model = toys.fresh()
        history = fit(model, folder=folder, max_seconds=0.0, samples=48)
        status = read_status(RunFolder(folder))
        assert status is not None
        steps.append(status.step)
        if "unfinished" not in history.about:
            break
        assert status.state == "cancelled"
        assert status.reason == "0 seconds are over; the same call goes on from here"
    assert steps == [*range(1, 7), 6]  # the last call finishes the epoch
    assert toys.equal(toys.weights(model), expected)
    assert list(history.rows()) == rows


# -- the best epochs
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(("monitor", "mode"), [("loss", "min"), ("label/accuracy", "max")])
def test_the_weights_of_the_best_epochs_by_any_metric_are_kept(
    monitor: str, mode: str, tmp_path: Path
) -> None:
    options = {
        "keep_best": 3,
        "monitor": f"blobs/test/{monitor}",
        "monitor_mode": mode,
        "num_epochs": 6,
    }
    options |= {"optimiser": AdamW(rate=0.1), "checkpoint_every": 2, "samples": 48}
    kept: dict[int, Any] = {}

    class Keeping(Callback):
        def on_epoch_end(self, fit: Any) -> None:
            kept[fit.epoch] = toys.weights(fit.model)

    history = fit(toys.fresh(), Keeping(), folder=tmp_path / "one", **options)
    figures = history[options["monitor"]] * (1 if mode == "min" else -1)
    best = sorted(range(1, 7), key=lambda epoch: (figures[epoch - 1], epoch))[:3]
    found = {path.stem: path for path in (tmp_path / "one" / "checkpoints").glob("best-*.state")}
    assert sorted(found) == sorted(f"best-{epoch:04d}" for epoch in best)
    for epoch in best:
        assert toys.equal(read_weights(found[f"best-{epoch:04d}"]), kept[epoch])
    interrupted(tmp_path / "two", 4, 9, 16, **options)
    assert states(tmp_path / "one").keys() == states(tmp_path / "two").keys()
    assert all(states(tmp_path / "two")[path.name] == path.read_bytes() for path in found.values())
    left = tmp_path / "two" / "checkpoints" / "best-0099.state"
    left.touch()  # by a process that was killed just before it removed this
    fit(toys.fresh(), folder=tmp_path / "two", **options)
    assert states(tmp_path / "one").keys() == states(tmp_path / "two").keys()


class Scripted:
    """An object as of torchmetrics, whose figures are given; it says which way they are better,
    or not.
    """

    values: ClassVar[Sequence[float]] = ()
    epoch: ClassVar[int] = 1

    def __init__(self, higher_is_better: bool | None = None) -> None:
        self.higher_is_better = higher_is_better

    def update(self, output: Any, target: Any) -> None: ...

    def reset(self) -> None: ...

    def compute(self) -> float:
        return self.values[self.epoch - 1]

    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class Counting(Callback):
    """Tells scripted metrics the epoch."""

    def on_epoch_begin(self, fit: Any) -> None:
        Scripted.epoch = fit.epoch


def monitored(
    figures: Sequence[float], metric: Any, name: str = "mine", **options: Any
) -> tuple[list[float], int]:
    """Train while a metric has these figures; return those of the history, and the epoch whose
    weights were kept.
    """
    Scripted.values, Scripted.epoch = figures, 1
    asked = {"num_epochs": len(figures), "weights": "best", **options}
    asked = {"monitor": f"blobs/test/label/{name}", **asked}
    history = Trainer(TrainerOptions(**asked), [Counting()]).fit(
        toys.fresh(),
        toys.sequences(48),
        optimiser=AdamW(rate=0.1),
        metrics={"label": {name: metric}},
    )
    return history[asked["monitor"]].tolist(), history.about["epoch"]


RISES = [0.2, 0.5, 0.9, 0.6]


@pytest.mark.parametrize(("higher", "epoch"), [(True, 3), (False, 1)])
def test_the_metric_says_which_epoch_is_the_best(higher: bool, epoch: int) -> None:
    assert monitored(RISES, Scripted(higher)) == (RISES, epoch)


@pytest.mark.parametrize(
    "figure", ["loss", "label/accuracy", "label/mean_sensitivity", "label/calibration_error"]
)
def test_each_figure_keeps_its_best_weights(figure: str) -> None:
    name = figure.rpartition("/")[2]
    own = {"metrics": {"label": [name]}} if name not in ("loss", "accuracy") else {}
    asked = TrainerOptions(num_epochs=6, monitor=f"blobs/test/{figure}", weights="best")
    data = toys.sequences(48)
    history = Trainer(asked).fit(toys.fresh(), data, optimiser=AdamW(rate=0.3), **own)
    figures = history[f"blobs/test/{figure}"].tolist()
    best = min(figures) if name in ("loss", "calibration_error") else max(figures)
    assert figures[history.about["epoch"] - 1] == best
    assert min(figures) < max(figures)


def test_a_metric_of_ones_own_says_which_epoch_is_the_best(tmp_path: Path) -> None:
    for less in (True, False):
        metric = QualityMetric(
            "mine",
            "Mine",
            "Mine",
            "nothing",
            "ratio",
            less,
            values=lambda found: found.arrays["rank"],
        )
        figures, epoch = monitored([0] * 4, metric)
        assert figures[epoch - 1] == (min if less else max)(figures)
        assert min(figures) < max(figures)
    Trainer(TrainerOptions(num_epochs=4), [BestFigures()]).fit(
        toys.fresh(),
        toys.sequences(48),
        optimiser=AdamW(rate=0.1),
        metrics={"label": [metric]},
        folder=tmp_path,
    )
    rows = json.loads((tmp_path / "tables" / "best.json").read_text())
    assert {row["figure"]: "best" in row for row in rows}["blobs/test/label/mine"]


def test_a_figure_that_does_not_say_it_is_asked_for_before_the_first_epoch() -> None:
    with pytest.raises(
        ConfigError,
        match="nothing says whether less of 'blobs/test/label/mine' is better; give mon",
    ):
        monitored(RISES, Scripted())
    assert monitored(RISES, Scripted(), monitor_mode="max") == (RISES, 3)
    assert monitored(RISES, Scripted(), monitor_mode="min") == (RISES, 1)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("higher", [True, False])
def test_a_figure_that_is_not_finite_is_never_the_best(
    number: float, higher: bool, caplog: pytest.LogCaptureFixture
) -> None:
    figures = [number, 0.5, number, number, 0.1]
    assert monitored(figures, Scripted(higher), patience=2)[1] == 2
    assert Scripted.epoch == 4  # two that are not finite in a row are not better
    assert "which counts as the worst" in caplog.text


def test_a_metric_of_outputs_that_are_no_numbers_is_no_number() -> None:
    class Losing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toys.fresh()

        def forward(self, batch: dict[str, Any]) -> Any:
            found = self.inner(batch)["label"]
            if not self.training:
                found.output = (
                    found.output
                    * torch.where(batch["sample_id"] % 2 == 0, 1.0, float("nan"))[:, None]
                )
            return {"label": found}

    figures = Trainer(TrainerOptions()).evaluate(Losing(), toys.sequences(48))
    shown = {name: value for name, value in figures.items() if name.startswith("blobs/test/")}
    assert set(shown) >= {"blobs/test/loss", "blobs/test/label/accuracy"}
    assert all(math.isnan(value) for value in shown.values())


# -- divergence
# ---------------------------------------------------------------------------------------


def fragile(fit: Any, batch: dict[str, Any]) -> Any:
    """Diverges at the tenth step if the learning rate is above 0.004."""
    loss, outputs = fit.forward(batch)
    fit.backward(loss * float("nan") if fit.step == 9 and fit.rates[0] > 0.004 else loss)
    fit.update()
    return outputs


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        Milestones(milestones=(100,)),
        TorchSchedule(make=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0)),
    ],
    ids=["constant", "schedule", "scheduler"],
)
def test_a_training_that_diverges_goes_back_and_on_more_slowly(
    schedule: Any, tmp_path: Path, caplog: Any
) -> None:
    options = {
        "on_divergence": "rollback",
        "checkpoint_every": 3,
        "step": fragile,
        "schedule": schedule,
    }
    with caplog.at_level(logging.WARNING):
        weights, rows = interrupted(tmp_path / "one", **options)
    assert [row["learning_rate"] for row in rows] == [0.01, 0.0025]  # two halves
    assert "back to step 9, with the learning rates times 0.25 (rollback 2 of 3)" in caplog.text
    assert "diverged in epoch 2, step 10, samples" in caplog.text
    again, resumed = interrupted(tmp_path / "two", 5, 10, 13, **options)
    assert toys.equal(weights, again)
    assert rows == resumed
    assert states(tmp_path / "one") == states(tmp_path / "two")


def test_it_can_go_back_to_the_very_beginning_and_gives_up_at_last(tmp_path: Path) -> None:
    def hopeless(fit: Any, batch: dict[str, Any]) -> None:
        fit.backward(fit.forward(batch)[0] * float("nan"))

    with pytest.raises(
        TrainingError, match=r"diverged in epoch 1, step 1, .*; so it did after 2 rollbacks"
    ):
        fit(toys.fresh(), folder=tmp_path, on_divergence="rollback", max_rollbacks=2, step=hopeless)
    with pytest.raises(
        ConfigError, match="on_divergence='rollback' needs a folder with checkpoints"
    ):
        fit(toys.fresh(), on_divergence="rollback")


# -- memory
# -------------------------------------------------------------------------------------------


class Images(torch.nn.Module):
    """Convolutions with normalisation and dropout, for what has an order of axes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.body = torch.nn.Sequential(
                torch.nn.Conv2d(1, 8, 3, padding=1),
                torch.nn.BatchNorm2d(8),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.2),
            )
            self.head = torch.nn.Linear(8, 3)

    def forward(self, batch: dict[str, Any]) -> Any:
        seen = self.body(batch["x"].reshape(-1, 1, 2, 4)).mean((2, 3))
        return ClassificationOutput(self.head(seen), batch["label"])


def test_layers_that_compute_their_outputs_again_learn_the_same_to_the_bit() -> None:
    counts = []

    class Counting(Callback):
        def on_fit_begin(self, fit: Any) -> None:
            fit.model.body[2].register_forward_hook(lambda *_: counts.append(fit.model.training))

    again, kept = Images(), Images()
    history = fit(again, Counting(), recompute=("bod*",))
    assert toys.equal(toys.weights(again), toys.weights(kept)) is False
    expected = fit(kept)
    assert toys.equal(toys.weights(again), toys.weights(kept))
    assert list(history.rows()) == list(expected.rows())
    assert counts.count(True) == 2 * 14  # once more for the gradients of each step
    assert "forward" not in vars(again.body)


def test_a_copy_of_such_a_layer_computes_by_itself() -> None:
    model = Images()
    with recompute_activations(model, ["body"]):
        other = copy.deepcopy(model)
        batch = {name: torch.from_numpy(value) for name, value in toys.blobs(8).items()}
        other(batch).loss().backward()
    assert model.body[0].weight.grad is None
    assert other.body[0].weight.grad is not None


def test_a_layer_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match="recompute: Images has no layer 'boddy'; did you mean body"
    ):
        fit(Images(), recompute=["boddy"])


def pictures() -> Iterator[Any]:
    while True:
        data = toys.sequences()
        for sequence in data["blobs"].values():
            sequence.arrays["x"] = sequence.arrays["x"].reshape(-1, 1, 2, 4)
        yield data


def test_images_and_kernels_can_have_their_channels_last_in_memory(tmp_path: Path) -> None:
    data, seen = pictures(), []

    class Watch(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            kernel = fit.model.body[0].weight
            seen.append(kernel.is_contiguous(memory_format=torch.channels_last))
            seen.append(batch["x"].is_contiguous(memory_format=torch.channels_last))

    last, first = Images(), Images()
    last.body[3].p = first.body[3].p = 0.0  # dropout draws its numbers in the order of memory
    history = fit(
        last, Watch(), data=next(data), channels_last=True, folder=tmp_path / "one", optimiser=SGD()
    )
    assert all(seen)
    expected = fit(first, data=next(data), optimiser=SGD())
    assert history["blobs/test/loss"] == pytest.approx(expected["blobs/test/loss"], rel=1e-4)
    with suppress(KeyboardInterrupt):
        other = Images()
        other.body[3].p = 0.0
        fit(
            other,
            toys.Interrupting(9),
            data=next(data),
            channels_last=True,
            folder=tmp_path / "two",
            optimiser=SGD(),
        )
    resumed = Images()
    resumed.body[3].p = 0.0
    fit(resumed, data=next(data), channels_last=True, folder=tmp_path / "two", optimiser=SGD())
    assert toys.equal(toys.weights(last), toys.weights(resumed))


# -- the average of epochs
# ----------------------------------------------------------------------------


def test_the_weights_of_several_epochs_are_averaged_with_statistics_of_their_own(
    tmp_path: Path,
) -> None:
    seen = []

    class Watch(Callback):
        def on_epoch_end(self, fit: Any) -> None:
            seen.append(
                {name: value.detach().clone() for name, value in fit.model.named_parameters()}
            )

    averaged, plain = toys.fresh(), toys.fresh()
    options = {"num_epochs": 5, "swa_start": 3, "checkpoint_every": 2, "samples": 48}
    history = fit(averaged, Watch(), folder=tmp_path / "one", **options)
    expected = fit(plain, num_epochs=5, samples=48)
    assert history["blobs/test/loss"].tolist() == expected["blobs/test/loss"].tolist()
    for name, value in averaged.named_parameters():
        mean = torch.stack([weights[name].double() for weights in seen[2:]]).mean(0)
        assert torch.allclose(value.double(), mean, atol=1e-7), name
    bare = toys.fresh()
    bare.load_state_dict(averaged.state_dict())
    sequence = toys.sequences(48)["blobs"]["train"]
    sequence.set_epoch(1)
    batches = [
        {name: torch.from_numpy(value) for name, value in batch.items()} for batch in sequence
    ]
    torch.optim.swa_utils.update_bn(batches, _Plain(bare))
    assert torch.allclose(averaged.layers[1].running_mean, bare.layers[1].running_mean, atol=1e-6)
    assert torch.allclose(averaged.layers[1].running_var, bare.layers[1].running_var, atol=1e-6)
    assert history.about["weights"] == "average"
    assert (
        history.about["blobs/test/loss"]
        == Trainer().evaluate(averaged, toys.sequences())["blobs/test/loss"]
    )
    weights, _ = interrupted(tmp_path / "two", 4, 11, 14, **options)
    assert toys.equal(weights, toys.weights(averaged))


class _Plain(torch.nn.Module):
    """Takes a batch as PyTorch's ``update_bn`` gives it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> Any:
        return self.model(batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"swa_start": 3}, "swa_start=3 is after the last epoch, 2"),
        ({"swa_start": 1, "ema_decay": 0.9}, "two averages"),
        ({"weights": "average"}, "needs ema_decay or swa_start"),
        ({"keep_best": 2, "train_splits": ["train", "test"]}, "keep_best needs a figure to watch"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(toys.fresh(), **options)
