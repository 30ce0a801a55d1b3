"""Training in PyTorch: the mistakes that others made, and what happens when something goes
wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, DatasetError, MissingDependency, TrainingError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

T = TypeVar("T")


class Plain(PyTorchWrapper):
    """A model whose loss on a sample depends on nothing but the sample."""

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (TensorSpec("image", (None, 48), "float32"),),
            (TensorSpec("scores", (None, 4), "float32"),),
        )

    def build(self) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(48, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))

    def preprocess(self, inputs: Batch) -> Batch:
        return {"image": inputs["image"].reshape(-1, 48).astype(np.float32) / 255}


class Normalised(Plain):
    """A model that cannot be trained on a single sample."""

    def build(self) -> Any:
        return torch.nn.Sequential(super().build(), torch.nn.BatchNorm1d(4))


class Dropping(Plain):
    """A model that draws random numbers in training."""

    def build(self) -> Any:
        return torch.nn.Sequential(super().build(), torch.nn.Dropout(0.5))


def images(count: int = 100, **more: Any) -> SyntheticImagesDataset:
    return SyntheticImagesDataset(num_samples=count, image_size=(4, 4), channels=3, **more)


def options(**more: Any) -> TrainingOptions:
    return TrainingOptions.from_json(
        {"num_epochs": 1, "batch_size": 16, "learning_rate": 0.01} | more
    )


def whole_loss(model: LiveModel, dataset: Dataset, split: str) -> float:
    """Mean loss over all samples at once."""
    raw, truth = dataset.read(dataset.split(split))
    with torch.no_grad():
        logits = model.native(torch.from_numpy(model.wrapper.preprocess(raw)["image"]))
    return float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(truth["label"])))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_every_sample_weighs_the_same_whatever_the_batches(size: int) -> None:
    dataset, model = images(), Plain().open()
    history = model.train(dataset, options(batch_size=size, learning_rate=0.0))
    (epoch,) = history.epochs
    assert epoch["loss"] == pytest.approx(whole_loss(model, dataset, "train"), rel=1e-5)
    assert epoch["validation_loss"] == pytest.approx(
        whole_loss(model, dataset, "validation"), rel=1e-5
    )
    assert epoch["accuracy"] * len(dataset.split("train")) == pytest.approx(
        round(epoch["accuracy"] * len(dataset.split("train")))
    )


def test_the_step_size_asked_for_is_the_one_used() -> None:
    # The first step of Adam moves every weight by the step size, whatever its gradient.
    dataset = images()
    count = len(dataset.split("train"))
    before = Plain().open().get_weights()
    trained = Plain().open()
    trained.native  # noqa: B018  # starts from the same weights
    trained.train(dataset, options(batch_size=count, learning_rate=0.01))
    moved = np.concatenate(
        [(trained.get_weights()[name] - before[name]).ravel() for name in before]
    )
    assert np.median(np.abs(moved)) == pytest.approx(0.01, rel=0.05)


def test_the_step_size_falls_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from nnpipe.testing._training import read_curves

    Plain().open().train(images(), options(num_epochs=5, logdir=str(tmp_path)))
    found = read_curves(tmp_path)
    assert set(found) == {
        "train/loss",
        "train/accuracy",
        "train/learning_rate",
        "validation/loss",
        "validation/accuracy",
    }
    rates = found["train/learning_rate"]
    assert rates[0] == pytest.approx(0.01)
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.002


@pytest.mark.parametrize("cls", [Plain, Normalised, Dropping])
def test_equal_seeds_give_equal_weights_to_the_last_bit(cls: type[Plain]) -> None:
    first, second, third = cls().open(), cls().open(), cls().open()
    first.train(images(), options(seed=3, num_epochs=2))
    torch.manual_seed(99)  # what others draw has no influence
    second.train(images(), options(seed=3, num_epochs=2))
    third.train(images(), options(seed=4, num_epochs=2))
    for name, array in first.get_weights().items():
        np.testing.assert_array_equal(array, second.get_weights([name])[name])
    assert any(
        not np.array_equal(a, third.get_weights([n])[n]) for n, a in first.get_weights().items()
    )


def test_training_leaves_the_random_numbers_of_others_alone() -> None:
    state = torch.get_rng_state()
    Dropping().open().train(images(), options())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_trained_model_is_trained_further() -> None:
    model = Plain().open()
    first = model.train(images(), options(num_epochs=3))
    second = model.train(images(), options(num_epochs=3, seed=1))
    assert second.epochs[0]["loss"] < first.epochs[0]["loss"]


def test_a_single_sample_left_over_joins_the_batch_before_it() -> None:
    dataset = images(21, validation_fraction=0.0, test_fraction=0.2)
    count = len(dataset.split("train"))
    history = Normalised().open().train(dataset, options(batch_size=count - 1))
    assert math.isfinite(history.epochs[0]["loss"])


def test_without_validation_samples_there_are_no_figures_of_them() -> None:
    history = Plain().open().train(images(validation_fraction=0.0), options())
    assert set(history.epochs[0]) == {"loss", "accuracy"}


def test_a_data_set_without_training_samples_is_refused() -> None:
    class Empty(SyntheticImagesDataset):
        """Nothing to learn from."""

        def split(self, name: str) -> np.ndarray:
            return super().split(name)[:0]

    with pytest.raises(DatasetError, match="Empty has no training samples"):
        Plain().open().train(Empty(num_samples=8, image_size=(4, 4), channels=3), options())


def test_a_diverging_training_stops_with_one_line_that_says_why() -> None:
    model = Plain().open()
    weights = model.get_weights()
    model.set_weights({"2.bias": np.full_like(weights["2.bias"], np.nan)})
    with pytest.raises(
        TrainingError, match=r"diverged in epoch 1, step 1, samples .*: the loss is nan; .*learning"
    ) as caught:
        model.train(images(), options())
    assert "\n" not in str(caught.value)
    assert not model.native.training


class Stop:
    """Presses Ctrl-C after some batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        for item in items:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield item


def test_an_interrupted_training_leaves_whole_event_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from nnpipe.testing._training import read_curves

    model = Plain().open()
    with pytest.raises(KeyboardInterrupt):
        # 5 and 1 batches an epoch
        model.train(images(), options(num_epochs=9, logdir=str(tmp_path)), Stop(12))
    found = read_curves(tmp_path)
    assert {name: len(points) for name, points in found.items()} == dict.fromkeys(found, 2)
    assert found
    assert not model.native.training


def test_progress_is_told_what_and_how_much() -> None:
    seen: list[tuple[str, int | None, int]] = []

    def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        done = list(items)
        seen.append((what, total, len(done)))
        return done

    Plain().open().train(images(), options(num_epochs=2), progress)
    assert seen == [
        ("epoch 1/2", 5, 5),
        ("data/validation", 1, 1),
        ("epoch 2/2", 5, 5),
        ("data/validation", 1, 1),
    ]


def test_a_log_folder_that_is_a_file_is_refused_before_the_training(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        Plain().open().train(images(), options(logdir=str(path)), Stop(0))
    assert path.read_text() == "mine"


def test_missing_tensorboardx_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingDependency, match=r"tensorboardX.*pip install"):
        Plain().open().train(images(), options(logdir=str(tmp_path / "logs")), Stop(0))
    Plain().open().train(images(), options())  # which needs none


def test_training_needs_no_reading_of_test_samples() -> None:
    read: list[int] = []

    class Watched(SyntheticImagesDataset):
        """Notes which samples are read."""

        def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
            read.extend(int(i) for i in indices)
            return super().read(indices)

    dataset = Watched(num_samples=100, image_size=(4, 4), channels=3)
    Plain().open().train(dataset, options())
    assert sorted(read) == sorted([*dataset.split("train"), *dataset.split("validation")])


def test_a_small_model_is_trained_on_one_thread_whatever_the_machine_has() -> None:
    seen = []

    class Watched(Plain):
        """Notes the number of threads."""

        def loss(self, outputs: tuple[Any, ...], truth: Any) -> Any:
            seen.append(torch.get_num_threads())
            return super().loss(outputs, truth)

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Watched().open().train(images(), options())
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_large_model_is_given_the_threads_it_has_work_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nnpipe.modelwrappers.frameworks import pytorch_training

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert pytorch_training.count_useful_threads(Plain(), Plain().build(), 16) == 1
        # 16 samples through 48 x 8 + 8 x 4 multiplications and additions.
        monkeypatch.setattr(pytorch_training, "_OPERATIONS_A_THREAD", 16 * 2 * 416 / 2)
        assert pytorch_training.count_useful_threads(Plain(), Plain().build(), 16) == 2
        assert pytorch_training.count_useful_threads(Plain(), Plain().build(), 16000) == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_a_training_that_was_interrupted_goes_on_where_its_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="Matplotlib is not installed").Figure
    # nobody looks at the pictures
    monkeypatch.setattr(figure, "savefig", lambda _, path, **more: path.touch())
    asked = options(num_epochs=4, run_folder=str(tmp_path))
    undisturbed, resumed = Dropping().open(), Dropping().open()
    history = undisturbed.train(images(), options(num_epochs=4))
    with pytest.raises(KeyboardInterrupt):
        Dropping().open().train(images(), asked, Stop(15))  # 5 and 1 batches an epoch
    seen: list[str] = []

    def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        seen.append(what)
        return items

    assert resumed.train(images(), asked, progress) == history
    assert seen[0] == "epoch 3/4"
    for name, array in undisturbed.get_weights().items():
        np.testing.assert_array_equal(array, resumed.get_weights([name])[name])
    with pytest.raises(
        ConfigError,
        match=(
            r"this run was started with different settings: .*training\.batch_size was .*use "
            r"another folder"
        ),
    ):
        Dropping().open().train(
            images(), options(num_epochs=4, run_folder=str(tmp_path), batch_size=8)
        )


def test_the_loss_of_each_sample_can_be_had_from_a_wrapper() -> None:
    from nnpipe.modelwrappers.frameworks.pytorch_training import WrapperOutput

    logits, label = torch.randn(5, 4), torch.arange(5) % 4
    output = WrapperOutput((logits,), {"label": label}, wrapper=Plain())
    expected = torch.nn.functional.cross_entropy(logits, label, reduction="none")
    assert torch.allclose(output.losses, expected)
