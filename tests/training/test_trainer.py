"""The trainer against hand-written loops, and what it promises besides."""
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
from torch.nn import functional as F

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.optimization import (
    SGD,
    AdamW,
    ConstantRate,
    Cosine,
    Exponential,
    Milestones,
    TorchSchedule,
)
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.regression import RegressionOutput
from nnpipe.training.trainer import Trainer


def fit(model: Any, sequences: Any = None, *callbacks: Callback, **options: Any) -> Any:
    """Train for two epochs, or as said."""
    kept = {
        name: options.pop(name)
        for name in ("folder", "optimiser", "schedule", "resume")
        if name in options
    }
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    return Trainer(asked, callbacks).fit(
        model, toys.sequences() if sequences is None else sequences, **kept
    )


def by_hand(
    model: Any, epochs: int = 2, seed: int = 0, train: int = 100, size: int = 16
) -> list[tuple[float, float]]:
    """What anybody would write: AdamW, mean cross entropy; loss and accuracy of each epoch."""
    torch.manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    sequence = toys.sequences(train, size=size)["blobs"]["train"]
    found = []
    for epoch in range(1, epochs + 1):
        model.train()
        sequence.set_epoch(epoch)
        loss_sum, hits, count = 0.0, 0, 0
        for batch in sequence:
            x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["label"])
            logits = model.layers(x)
            loss = F.cross_entropy(logits, y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss_sum += float(F.cross_entropy(logits.detach().double(), y, reduction="sum"))
            hits += int((logits.argmax(1) == y).sum())
            count += len(y)
        found.append((loss_sum / count, hits / count))
    model.eval()
    return found


# -- the same as by hand ------------------------------------------------------------------------


def test_weights_equal_those_of_a_hand_written_loop_to_the_last_bit() -> None:
    trained, expected = toys.fresh(), toys.fresh()
    history = fit(trained)
    figures = by_hand(expected)
    assert toys.equal(toys.weights(trained), toys.weights(expected))
    assert history["blobs/train/loss"].tolist() == pytest.approx(
        [loss for loss, _ in figures], rel=1e-6
    )
    assert history["blobs/train/label/accuracy"].tolist() == [accuracy for _, accuracy in figures]
    assert history["step"].tolist() == [7, 14]


def test_nothing_outside_notices_the_random_numbers_of_a_training() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    fit(toys.fresh())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


@pytest.mark.parametrize("size", [7, 64, 512])
def test_an_evaluation_does_not_depend_on_the_batch_size(size: int) -> None:
    model = toys.fresh()
    fit(model)
    data = toys.blobs(500, 7) | {"weight": np.random.default_rng(0).random(500).astype(np.float32)}
    found = Trainer().evaluate(model, {"d": {"test": toys.ArraySequence(data, size)}})
    with torch.no_grad():
        logits = model.double().layers(torch.from_numpy(data["x"]).double())
    losses = F.cross_entropy(logits, torch.from_numpy(data["label"]), reduction="none").numpy()
    assert found["d/test/loss"] == pytest.approx(
        np.average(losses, weights=data["weight"]), abs=1e-6
    )
    hits = logits.argmax(1).numpy() == data["label"]
    assert found["d/test/label/accuracy"] == pytest.approx(
        np.average(hits, weights=data["weight"]), abs=1e-6
    )


def test_the_evaluation_is_not_another_epoch_and_does_not_change_the_training() -> None:
    watched, alone = toys.fresh(), toys.fresh()
    history = fit(watched)
    only_train = {"blobs": {"train": toys.sequences()["blobs"]["train"]}}
    fit(alone, only_train)
    assert len(history) == 2
    assert toys.equal(toys.weights(watched), toys.weights(alone))
    assert (
        history.last["blobs/test/loss"]
        == Trainer().evaluate(watched, toys.sequences())["blobs/test/loss"]
    )


# -- steps ----------------------------------------------------------------------------------------


class Plain(torch.nn.Module):
    """Without batch normalisation and dropout, so that a batch may be cut."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
            )

    def forward(self, batch: dict[str, Any]) -> Any:
        return ClassificationOutput(self.layers(batch["x"]), batch["label"])


def test_accumulated_batches_are_one_large_batch_and_the_rest_is_not_lost() -> None:
    # 100 samples: three steps of 32 and one of 4 in both.
    cut, whole = Plain(), Plain()
    history = fit(cut, toys.sequences(size=8), accumulate=4, optimiser=SGD())
    fit(whole, toys.sequences(size=32), optimiser=SGD())
    assert history.last["step"] == 8
    for name, value in toys.weights(cut).items():
        assert torch.allclose(value, whole.state_dict()[name], atol=1e-6), name


def test_accumulated_batches_of_unequal_size_weigh_by_their_samples() -> None:
    cut, whole = Plain(), Plain()
    # 20 samples in 16 + 4: the mean of two means would not be the mean.
    fit(cut, toys.sequences(20, size=16), accumulate=2, num_epochs=1, optimiser=SGD())
    fit(whole, toys.sequences(20, size=20), num_epochs=1, optimiser=SGD())
    for name, value in toys.weights(cut).items():
        assert torch.allclose(value, whole.state_dict()[name], atol=1e-6), name


class Recorder(Callback):
    def __init__(self) -> None:
        self.rates: list[float] = []
        self.norms: list[float] = []
        self.moves: list[float] = []

    def on_fit_begin(self, fit: Any) -> None:
        self.last = toys.weights(fit.model)

    def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
        self.rates.append(fit.rates[0])
        gradients = [p.grad for p in fit.model.parameters()]
        self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))
        now = toys.weights(fit.model)
        self.moves.append(
            math.sqrt(sum(float((now[n] - self.last[n]).square().sum()) for n in now))
        )
        self.last = now


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_schedule_with_clipping_changes_the_rate_that_is_used(precision: str) -> None:
    recorder = Recorder()
    fit(
        Plain(),
        None,
        recorder,
        clip_norm=0.01,
        precision=precision,
        num_epochs=1,
        optimiser=SGD(rate=1.0, momentum=0),
        schedule=Exponential(gamma=0.5),
    )
    assert recorder.rates == [0.5**step for step in range(7)]
    assert recorder.norms == pytest.approx([0.01] * 7, rel=1e-3)
    # Without momentum a step moves the weights by rate times norm: the rate shown is the rate used.
    assert recorder.moves == pytest.approx([0.01 * rate for rate in recorder.rates], rel=0.02)


def test_gradients_can_be_clipped_by_value() -> None:
    sizes = []

    class Watch(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            sizes.append(max(float(p.grad.abs().max()) for p in fit.model.parameters()))

    fit(Plain(), None, Watch(), clip_value=1e-3)
    assert max(sizes) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (ConstantRate(warmup=4), [0.25, 0.5, 0.75, 1, 1, 1]),
        (Milestones(milestones=(2, 4), gamma=0.1), [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (Cosine(), [0.5 * (1 + math.cos(math.pi * step / 14)) for step in range(6)]),
        (Cosine(warmup=2, floor=0.5), [0.5, 1, 1, 0.5 + 0.25 * (1 + math.cos(math.pi / 12))]),
        (
            TorchSchedule(make=lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5)),
            [1, 0.5, 0.5, 0.25, 0.25],  # after the step, of the next one
        ),
    ],
)
def test_schedules_set_the_rate(schedule: Any, expected: list[float]) -> None:
    recorder = Recorder()
    fit(Plain(), None, recorder, optimiser=SGD(rate=1.0, momentum=0), schedule=schedule)
    assert recorder.rates[: len(expected)] == pytest.approx(expected)


def test_a_schedule_that_watches_a_figure_is_given_it() -> None:
    plateau = TorchSchedule(
        make=lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(
            o, patience=0, threshold=100.0, threshold_mode="abs"
        ),
        per="epoch",
    )
    history = fit(Plain(), num_epochs=4, optimiser=SGD(rate=1e-3), schedule=plateau)
    assert history["learning_rate"].tolist() == pytest.approx([1e-3, 1e-3, 1e-4, 1e-5])


def test_a_cosine_needs_a_length() -> None:
    endless = {"d": {"train": toys.ArraySequence(toys.blobs(20), 8, known_length=False)}}
    with pytest.raises(ConfigError, match="without a length"):
        fit(Plain(), endless, schedule=Cosine())
    assert fit(Plain(), endless).last["step"] == 6


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_learns_as_single_precision_does(precision: str) -> None:
    kinds = []

    class Watch(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            kinds.append((outputs["output"].output.dtype, outputs["output"].losses.dtype))

    model, single = Plain(), Plain()
    history = fit(model, None, Watch(), precision=precision, num_epochs=3)
    expected = fit(single, num_epochs=3)
    assert set(kinds) == {(getattr(torch, precision), torch.float32)}
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert history["blobs/test/loss"] == pytest.approx(expected["blobs/test/loss"], rel=0.02)


def test_the_moving_average_is_evaluated_and_does_not_change_the_training() -> None:
    averaged, plain = toys.fresh(), toys.fresh()
    history, other = fit(averaged, ema_decay=0.9, weights="last"), fit(plain)
    assert toys.equal(toys.weights(averaged), toys.weights(plain))
    assert (history["blobs/test/loss"] != other["blobs/test/loss"]).all()
    assert history["blobs/train/loss"].tolist() == other["blobs/train/loss"].tolist()


# -- several data sets, splits and outputs
# ----------------------------------------------------------


class TwoTasks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.body, self.kind, self.size = (
                torch.nn.Linear(8, 8),
                torch.nn.Linear(8, 3),
                torch.nn.Linear(8, 1),
            )

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        body = self.body(batch["x"]).relu()
        found: dict[str, Any] = {}
        if "label" in batch:
            found["kind"] = ClassificationOutput(self.kind(body), batch["label"])
        if "size" in batch:
            found["size"] = RegressionOutput(self.size(body)[:, 0], batch["size"], scale=0.5)
        return found


def two_datasets() -> dict[str, dict[str, Any]]:
    one, other = toys.blobs(40), toys.blobs(24, 1)
    size = np.linalg.norm(other["x"], axis=1)
    both = {**one, "size": np.linalg.norm(one["x"], axis=1)}
    return {
        "kinds": {"train": toys.ArraySequence(one, 8), "test": toys.ArraySequence(both, 8)},
        "sizes": {"train": toys.ArraySequence({"x": other["x"], "size": size}, 8)},
    }


@pytest.mark.parametrize("mixing", ["sequential", "interleaved"])
def test_data_sets_with_other_tasks_are_learned_together(mixing: str) -> None:
    order: list[str] = []

    class Watch(Callback):
        def on_batch_begin(self, fit: Any, batch: Any) -> None:
            order.append(fit.dataset)

    history = fit(TwoTasks(), two_datasets(), Watch(), mixing=mixing, num_epochs=1)
    row = history.last
    assert "kinds/train/kind/loss" not in row  # a single output's loss is the whole one
    assert row["sizes/train/loss"] == pytest.approx(0.5 * row["sizes/train/size/loss"])
    test = row["kinds/test/kind/loss"] + 0.5 * row["kinds/test/size/loss"]
    assert row["kinds/test/loss"] == pytest.approx(test)
    by_turns = ["kinds", "sizes"] * 3 + ["kinds"] * 2
    assert order == (by_turns if mixing == "interleaved" else ["kinds"] * 5 + ["sizes"] * 3)


@pytest.mark.parametrize("name", ["size", "loss", "of/lossless/size"])
def test_a_scale_counts_whatever_its_output_is_called(name: str) -> None:
    class Renamed(TwoTasks):
        def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
            found = super().forward(batch)
            return {"kind": found["kind"], name: found["size"]}

    row = Trainer().evaluate(Renamed(), {"kinds": {"test": two_datasets()["kinds"]["test"]}})
    total = row["kinds/test/kind/loss"] + 0.5 * row[f"kinds/test/{name}/loss"]
    assert row["kinds/test/loss"] == pytest.approx(total)


# -- the course of a training
# -----------------------------------------------------------------------


def test_it_stops_early_and_keeps_the_best(tmp_path: Path) -> None:
    from nnpipe.training.checkpoints import load_weights

    model = toys.fresh()
    history = fit(model, num_epochs=30, patience=2, folder=tmp_path, optimiser=AdamW(rate=0.1))
    losses = history["blobs/test/loss"]
    best = int(np.argmin(losses))
    assert len(history) == best + 3 < 30
    other = toys.fresh(5)
    load_weights(tmp_path / "checkpoints" / "best.state", other)
    assert Trainer().evaluate(other, toys.sequences())["blobs/test/loss"] == losses[best]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"monitor": "blobs/test/los"},
            "no figure 'blobs/test/los' to monitor; there are .*blobs/test/loss",
        ),
        ({"train_splits": ["learn"]}, "train_splits are learn, and the data sets have test, train"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(toys.fresh(), **options)


def test_a_loss_that_is_no_number_stops_it_and_names_the_samples() -> None:
    sequences = toys.sequences()
    sequences["blobs"]["train"].arrays["x"][17] = np.nan
    model = Plain()
    with pytest.raises(
        TrainingError, match=r"diverged in epoch 1, step \d, samples .*\b17\b.*: the loss is nan"
    ):
        fit(model, sequences)
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert sequences["blobs"]["train"].closed


def test_a_loss_above_a_threshold_stops_it() -> None:
    with pytest.raises(TrainingError, match=r"abort_above is 0\.1"):
        fit(Plain(), abort_above=0.1)


@pytest.mark.parametrize(
    "hook", ["on_fit_begin", "on_epoch_begin", "on_epoch_end", "on_fit_end", "close"]
)
def test_a_callback_that_raises_stops_the_training_and_is_named(hook: str) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("oh")

    faulty = type("Faulty", (Callback,), {hook: fail})
    with pytest.raises(
        TrainingError, match=rf"Faulty\.{hook} failed in epoch \d.*ZeroDivisionError: oh"
    ):
        fit(toys.fresh(), None, faulty())


@pytest.mark.parametrize("hook", ["on_batch_begin", "on_batch_end", "on_evaluate_batch"])
def test_a_callback_that_raises_at_a_batch_names_its_samples(hook: str, caplog: Any) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("oh")

    faulty = type("Faulty", (Callback,), {hook: fail})
    sequences = toys.sequences(20)
    sequences["blobs"]["test"] = toys.ArraySequence(toys.blobs(3), 5, shuffle=False)
    with pytest.raises(
        TrainingError,
        match=rf"Faulty\.{hook} failed in epoch 1, step \d, samples \d+(, \d+)*: Zero",
    ):
        fit(toys.fresh(), sequences, faulty())
    assert len(fit(toys.fresh(), sequences, faulty(), callback_errors="log")) == 2
    assert "Faulty" in caplog.text


def test_callbacks_may_draw_numbers_and_switch_modes_without_being_noticed() -> None:
    class Rude(Callback):
        def on_epoch_begin(self, fit: Any) -> None:
            torch.rand(3)
            np.random.rand()
            fit.model.eval()

        on_epoch_end = on_epoch_begin

    rude, alone = toys.fresh(), toys.fresh()
    fit(rude, None, Rude())
    fit(alone)
    assert toys.equal(toys.weights(rude), toys.weights(alone))


def test_callbacks_are_called_in_order_and_closed() -> None:
    seen: list[str] = []

    def note(name: str) -> Any:
        return lambda *_: seen.append(name)

    names = [name for name in vars(Callback) if name.startswith("on_") or name == "close"]
    fit(
        toys.fresh(),
        toys.sequences(32, 40),
        type("All", (Callback,), {n: note(n) for n in names})(),
        num_epochs=1,
    )
    assert seen == [
        "on_fit_begin",
        "on_epoch_begin",
        *["on_batch_begin", "on_batch_end"] * 2,
        "on_evaluate_batch",
        "on_evaluate_batch",
        "on_epoch_end",
        "on_fit_end",
        "close",
    ]


@pytest.mark.parametrize("found", [3, {}, {"label": 3}])
def test_a_model_that_gives_no_outputs_is_told_how(found: Any) -> None:
    model = toys.fresh()
    model.forward = lambda batch: found
    with pytest.raises(ConfigError, match="Output"):
        fit(model)


@pytest.mark.slow  # half a minute of compiling
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in PyTorch's own compiler
def test_a_compiled_model_learns_the_same() -> None:
    torch._dynamo.reset()
    compiled, plain = Plain(), Plain()
    history, expected = fit(compiled, compile=True), fit(plain)
    assert history["blobs/test/loss"] == pytest.approx(expected["blobs/test/loss"], rel=1e-5)


def test_a_transform_that_raises_stops_it_with_the_sample() -> None:
    from nnpipe.training.sequences._batch_work import TransformError
    from nnpipe.training.sequences.array import ArraySequence

    def fail(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        if sample["sample_id"] == 17:
            raise ZeroDivisionError("oh")
        return sample

    with pytest.raises(TransformError, match="17"):
        fit(toys.fresh(), {"d": {"train": ArraySequence(toys.blobs(40), batch=8).map(fail)}})


def test_an_epoch_whose_figure_is_no_number_is_not_the_best() -> None:
    seen = []

    class Poison(Callback):
        """Makes the first evaluation useless."""

        def on_epoch_begin(self, fit: Any) -> None:
            fit.datasets["blobs"]["test"].arrays["x"][0] = np.nan if fit.epoch == 1 else 0.0

        def on_epoch_end(self, fit: Any) -> None:
            seen.append(fit.best_epoch)

    history = fit(toys.fresh(), None, Poison(), num_epochs=3)
    assert math.isnan(history["blobs/test/loss"][0])
    assert seen[0] == 0
    assert seen[1] == 2


def test_a_plain_module_is_told_what_a_trained_one_takes() -> None:
    plain = torch.nn.Sequential(torch.nn.Linear(8, 3))
    with pytest.raises(
        ConfigError, match=r"Sequential.forward takes no batch: .*dictionary of tensors"
    ):
        Trainer(TrainerOptions(num_epochs=1)).fit(plain, toys.sequences())
