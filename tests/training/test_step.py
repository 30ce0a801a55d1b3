"""Steps of one's own: what is promised of the default step holds for them, too."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import step_toys as gan
import training_toys as toys
from torch.nn import functional as F

from nnpipe.core.errors import ConfigError, NotSupported, TrainingError
from nnpipe.experiment.state_file import read_state
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.fit import TrainingRun
from nnpipe.training.optimization import SGD, AdamW, Cosine, Milestones, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer


def fit(model: Any, step: Any, sequences: Any = None, *callbacks: Callback, **options: Any) -> Any:
    """Train for two epochs, or as said."""
    kept = {
        n: options.pop(n)
        for n in ("folder", "optimiser", "schedule", "parameters", "resume")
        if n in options
    }
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    return Trainer(asked, callbacks).fit(model, sequences or toys.sequences(), step=step, **kept)


def written(fit: Any, batch: dict[str, Any]) -> Any:
    """The default step, written by a user."""
    loss, outputs = fit.forward(batch)
    fit.backward(loss)
    fit.update()
    return outputs


def circle(count: int = 100, size: int = 16) -> Any:
    return {"circle": {"train": toys.ArraySequence(gan.points(count), size)}}


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": 3, "clip_norm": 0.5, "ema_decay": 0.9, "precision": "float16"}],
    ids=["plain", "all"],
)
def test_the_default_step_written_again_learns_the_same_to_the_bit(options: dict[str, Any]) -> None:
    own, default = toys.fresh(), toys.fresh()
    history = fit(own, written, schedule=Cosine(warmup=2), **options)
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    expected = Trainer(asked, ()).fit(default, toys.sequences(), schedule=Cosine(warmup=2))
    assert toys.equal(toys.weights(own), toys.weights(default))
    assert list(history.rows()) == list(expected.rows())


def test_two_optimisers_learn_what_a_hand_written_loop_does_to_the_bit() -> None:
    trained, expected = gan.GAN(), gan.GAN()
    history = fit(trained, gan.Adversarial(), circle(), optimiser=gan.optimisers())
    batches = []
    for epoch in (1, 2):
        sequence = circle()["circle"]["train"]
        sequence.set_epoch(epoch)
        batches += list(sequence)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gan.by_hand(expected, batches)
    assert toys.equal(toys.weights(trained), toys.weights(expected))
    assert history.last["step"] == 14  # a step updates both
    assert {
        "circle/train/loss",
        "circle/train/real/loss",
        "circle/train/fake/accuracy",
    } <= history.last.keys()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_step_with_values_of_its_own_goes_on_to_the_bit(precision: str, tmp_path: Path) -> None:
    found = []
    for name, callbacks in (
        ("one", ()),
        ("two", (toys.Interrupting(3), toys.Interrupting(5), None)),
    ):
        for callback in callbacks or (None,):
            model, step = gan.GAN(), gan.Adversarial(limit=0.68)  # the generator waits now and then
            kept = {
                "accumulate": 2,
                "ema_decay": 0.9,
                "clip_norm": 1.0,
                "checkpoint_every": 1,
                "precision": precision,
            }
            kept |= {
                "optimiser": gan.optimisers(),
                "schedule": Milestones(milestones=(4,)),
                "folder": tmp_path / name,
            }
            try:
                history = fit(model, step, circle(), *filter(None, (callback,)), **kept)
            except KeyboardInterrupt:
                continue
            found.append((toys.weights(model), list(history.rows()), step.state.mean))
    (weights, rows, mean), (resumed, again, same) = found
    assert toys.equal(weights, resumed)
    assert repr(rows) == repr(again)  # a recall without positives is NaN
    assert mean == same != 0.6
    one, two = (
        (tmp_path / name / "checkpoints" / "last.state").read_bytes() for name in ("one", "two")
    )
    assert one == two


@pytest.mark.slow  # starts processes
def test_a_training_goes_on_to_the_bit_with_other_numbers_of_workers(tmp_path: Path) -> None:
    found = []
    for name, runs in (("one", [(0, None)]), ("two", [(2, 3), (1, 6), (0, None)])):
        for workers, stop in runs:
            model, points = (
                gan.GAN(),
                ArraySequence(gan.points(100), batch=16, sampler=RandomSampler(), seed=3),
            )
            data = {"circle": {"train": points.map(gan.shifted, workers=workers, seed=4)}}
            callbacks = () if stop is None else (toys.Interrupting(stop),)
            kept = {
                "accumulate": 2,
                "ema_decay": 0.9,
                "checkpoint_every": 1,
                "precision": "bfloat16",
            }
            with suppress(KeyboardInterrupt):
                fit(
                    model,
                    gan.Adversarial(),
                    data,
                    *callbacks,
                    optimiser=gan.optimisers(),
                    folder=tmp_path / name,
                    **kept,
                )
                found.append(toys.weights(model))
    assert len(found) == 2
    assert toys.equal(*found)


def test_gradients_that_wait_for_a_step_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    """One optimiser makes a step at each batch, the other at every third."""

    def turns(fit: Any, batch: dict[str, Any]) -> Any:
        loss, outputs = fit.forward(batch)
        loss.backward()
        if fit.batch % 3 == 2:
            fit.update("layers.4")
        fit.update("layers.0")
        return outputs

    states = []
    for callback in (None, toys.Interrupting(4), None):
        model = toys.fresh()
        folder = tmp_path / ("one" if callback is None and not states else "two")
        kept = {
            "optimiser": {"layers.0": SGD(rate=0.01), "layers.4": AdamW()},
            "checkpoint_every": 1,
        }
        try:
            fit(model, turns, None, *filter(None, (callback,)), folder=folder, **kept)
        except KeyboardInterrupt:
            amid = read_state(folder / "checkpoints" / "last.state", kind="training checkpoint")
            assert list(amid["processes"][0]["gradients"]) == ["layers.4"]
            continue
        states.append(toys.weights(model))
    assert toys.equal(*states)


def test_what_is_left_at_the_end_of_an_epoch_is_used_alike_after_a_kill(tmp_path: Path) -> None:
    """The epoch's last batch makes a step of one optimiser, and leaves the other's gradients for
    the end.
    """

    def late(fit: Any, batch: dict[str, Any]) -> Any:
        loss, outputs = fit.forward(batch)
        fit.backward(loss)
        fit.update("layers.0")
        return outputs

    class Killed(Callback):
        def on_epoch_end(self, fit: Any) -> None:
            raise KeyboardInterrupt

    found = []
    for callbacks in ((), (Killed(),), ()):
        model, folder = toys.fresh(), tmp_path / ("one" if not found else "two")
        kept = {
            "optimiser": {"layers.0": SGD(rate=0.01), "layers.4": SGD(rate=0.1)},
            "schedule": Cosine(warmup=3),
        }
        with suppress(KeyboardInterrupt):
            history = fit(
                model,
                late,
                None,
                *callbacks,
                folder=folder,
                checkpoint_every=7,
                ema_decay=0.9,
                **kept,
            )
            found.append((toys.weights(model), list(history.rows())))
    assert toys.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_accumulated_batches_are_one_large_batch_for_each_optimiser() -> None:
    def joint(fit: Any, batch: dict[str, Any]) -> Any:
        loss, outputs = fit.forward(batch)
        fit.backward(0.5 * loss, retain_graph=True)  # a loss in two parts is still one batch
        fit.backward(0.5 * loss)
        fit.update()
        return outputs

    kept = {"optimiser": {"layers.0": SGD(rate=0.1), "layers.4": SGD(rate=0.05)}}
    models = []
    for size, accumulate in ((8, 4), (32, 1)):
        model = toys.fresh(dropout=0.0)
        model.layers[1] = torch.nn.Tanh()  # instead of a layer that looks at a whole batch
        history = fit(model, joint, toys.sequences(size=size), accumulate=accumulate, **kept)
        assert history.last["step"] == 8
        models.append(toys.weights(model))
    for name, value in models[0].items():
        assert torch.allclose(value.float(), models[1][name].float(), atol=1e-6), name


def test_a_batch_without_an_update_is_skipped() -> None:
    moves = []

    def picky(fit: Any, batch: dict[str, Any]) -> Any:
        before = fit.model.layers[0].weight.detach().clone()
        found = None if 17 in batch["sample_id"].tolist() else written(fit, batch)
        moves.append(not torch.equal(before, fit.model.layers[0].weight))
        return found

    history = fit(toys.fresh(), picky, num_epochs=1)
    assert moves.count(False) == 1
    assert history.last["step"] == 6


def test_discarded_gradients_count_for_nothing() -> None:
    def twice(fit: Any, batch: dict[str, Any]) -> Any:
        loss, outputs = fit.forward(batch)
        fit.backward(100 * loss, retain_graph=True)
        fit.discard()
        fit.backward(loss)
        fit.update()
        return outputs

    one, other = toys.fresh(), toys.fresh()
    fit(one, twice)
    fit(other, written)
    assert toys.equal(toys.weights(one), toys.weights(other))


def test_gradients_of_ones_own_are_used_as_they_are() -> None:
    """As in gradient surgery (Yu et al., 2020), here with their signs turned round."""

    def turned(fit: Any, batch: dict[str, Any]) -> Any:
        loss, outputs = fit.forward(batch)
        weights = [p for p in fit.model.parameters() if p.requires_grad]
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = -gradient
        fit.check(loss)
        assert fit.update()
        return outputs

    one, other = toys.fresh(), toys.fresh()
    fit(one, turned, optimiser=SGD(rate=0.1, momentum=0), accumulate=2, num_epochs=1)
    losses = [
        Trainer().evaluate(model, toys.sequences())["blobs/train/loss"] for model in (one, other)
    ]
    assert losses[0] > losses[1]  # it went up the hill


def test_an_optimiser_may_forget_gradients_in_its_own_way() -> None:
    class Counting(torch.optim.SGD):
        forgot = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            Counting.forgot += 1
            super().zero_grad(set_to_none)

    one, other = toys.fresh(), toys.fresh()
    fit(one, written, optimiser=Counting(one.parameters(), lr=0.1))
    fit(other, written, optimiser=torch.optim.SGD(other.parameters(), lr=0.1))
    assert Counting.forgot == 14
    assert toys.equal(toys.weights(one), toys.weights(other))


def test_an_inner_loop_gives_gradients_of_gradients() -> None:
    """MAML (Finn et al., 2017): the loss after a step on half of the batch, by the weights
    before it.
    """

    def loss_of(model: Any, weights: dict[str, Any], batch: dict[str, Any], half: slice) -> Any:
        found = torch.func.functional_call(model.layers, weights, (batch["x"][half],))
        return F.cross_entropy(found, batch["label"][half])

    def inner(model: Any, batch: dict[str, Any]) -> Any:
        weights = dict(model.layers.named_parameters())
        loss = loss_of(model, weights, batch, slice(None, None, 2))
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
        return loss_of(model, moved, batch, slice(1, None, 2))

    def maml(fit: Any, batch: dict[str, Any]) -> None:
        fit.backward(inner(fit.model, batch))
        fit.update()

    trained, expected = toys.fresh(dropout=0.0), toys.fresh(dropout=0.0)
    for model in (trained, expected):
        model.layers[1] = torch.nn.Tanh()
    fit(trained, maml, optimiser=SGD(rate=0.1), num_epochs=1)
    optimiser = torch.optim.SGD(expected.parameters(), 0.1, 0.9, nesterov=True)
    sequence = toys.sequences()["blobs"]["train"]
    sequence.set_epoch(1)
    for batch in sequence:
        optimiser.zero_grad()
        inner(expected, {name: torch.from_numpy(value) for name, value in batch.items()}).backward()
        optimiser.step()
    assert toys.equal(toys.weights(trained), toys.weights(expected))


def test_several_updates_in_a_batch_are_one_step_of_the_schedule() -> None:
    rates = []

    def often(fit: Any, batch: dict[str, Any]) -> None:
        for _ in range(3):
            loss, _outputs = fit.forward(batch)
            fit.backward(loss, "layers.0")
            fit.update("layers.0")
        fit.backward(fit.forward(batch)[0], "layers.4")
        fit.update("layers.4")
        rates.append(fit.rates)

    schedule = {
        "layers.0": TorchSchedule(make=lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5)),
        "layers.4": Milestones(milestones=(3,)),
    }
    kept = {
        "optimiser": {"layers.0": SGD(rate=1e-3), "layers.4": SGD(rate=1e-2)},
        "schedule": schedule,
    }
    history = fit(toys.fresh(), often, num_epochs=1, **kept)
    assert history.last["step"] == 7
    assert [first for first, _ in rates] == pytest.approx(
        [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4, 1.25e-4]
    )
    assert [second for _, second in rates] == pytest.approx([1e-2] * 3 + [1e-3] * 4)


def test_a_loss_that_is_no_number_stops_a_step_of_ones_own_and_names_the_samples() -> None:
    def nan(fit: Any, batch: dict[str, Any]) -> None:
        fit.backward(fit.forward(batch)[0] * float("nan"))

    with pytest.raises(TrainingError, match=r"diverged in epoch 1, step 1, samples \d+"):
        fit(toys.fresh(), nan)


def test_a_run_is_not_continued_with_another_step(tmp_path: Path) -> None:
    fit(toys.fresh(), written, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"step was '.*written' and is '.*Adversarial'"):
        fit(toys.fresh(), gan.Adversarial(), folder=tmp_path)


@pytest.mark.parametrize(
    ("step", "kept", "message"),
    [
        (3, {}, "step is a int; give a function"),
        (gan.Adversarial, {}, "step is the class Adversarial; give an instance"),
        (lambda fit, batch: fit.update(), {}, r"no weight has a gradient; call fit\.backward"),
        (lambda fit, batch: {"a": 3}, {}, "the step .*lambda.*: 'a' is a int, no Output"),
        (lambda fit, batch: fit.update("critic"), {}, "no optimiser 'critic'; there are optimiser"),
        (
            written,
            {"optimiser": {"layer": AdamW()}},
            "optimiser 'layer': Net has no part of this name; name one of lay",
        ),
        (
            written,
            {"optimiser": {"layers": AdamW()}, "parameters": {"layer": []}},
            "did you mean 'layers'|no optimiser",
        ),
        (
            written,
            {"optimiser": {"layers": AdamW()}, "schedule": {"layer": Cosine()}},
            "schedule: there is no optim",
        ),
    ],
)
def test_what_cannot_work_is_refused(step: Any, kept: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(toys.fresh(), step, **kept)


def test_a_step_is_made_within_a_training_only() -> None:
    with pytest.raises(NotSupported, match=r"while Trainer\.fit runs"):
        TrainingRun(None, None, {}, None, TrainerOptions()).update()
