"""Training in the contract of model wrappers: whole trainings, single steps, and fitting a data
set.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np
import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch, get_batch_size
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.testing._analysis import (
    assert_batches_equal,
    find_reachable,
    open_twin,
    run_batch,
    skip_unless_offered,
)

T = TypeVar("T")


class TrainingContract:
    """What the training methods must do, if a wrapper offers them.

    Attributes
    ----------
    learning_rate
        A learning rate with which the wrapper learns the fixture ``dataset``.
    """

    learning_rate: float = 0.003

    @pytest.fixture
    def dataset(self) -> Dataset:
        raise NotImplementedError(
            "a wrapper that can be trained needs the fixture `dataset`: a small data set that the "
            "wrapper fits"
        )

    @pytest.fixture
    def options(self) -> TrainingOptions:
        return TrainingOptions.from_json(
            {"num_epochs": 3, "batch_size": 16, "learning_rate": self.learning_rate, "seed": 7}
        )

    # -- single steps -----------------------------------------------------------------------------

    def test_training_steps_give_loss_and_score(self, model: LiveModel) -> None:
        skip_unless_offered(model, "run_training")
        pairs = model.run_training(3)
        assert len(pairs) == 3
        for loss, score in pairs:
            assert isinstance(loss, float)
            assert isinstance(score, float)
            assert math.isfinite(loss)
            assert math.isfinite(score)

    def test_training_steps_change_the_model(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "run_training")
        before = run_batch(model, batch)
        model.run_training(1)
        after = run_batch(model, batch)
        assert any(not np.array_equal(after[name], before[name]) for name in before)

    def test_training_steps_are_the_same_every_time(self, model: LiveModel) -> None:
        skip_unless_offered(model, "run_training")
        assert open_twin(model).run_training(3) == model.run_training(3)

    def test_training_steps_on_one_batch_reduce_its_loss(
        self, model: LiveModel, request: pytest.FixtureRequest
    ) -> None:
        skip_unless_offered(model, "run_training")
        inputs, truth = _read_samples(model, request.getfixturevalue("dataset"))
        pairs = model.run_training(30, repeat((inputs, truth)))
        assert len(pairs) == 30
        assert pairs[-1][0] < pairs[0][0]

    def test_training_steps_end_with_their_samples(
        self, model: LiveModel, request: pytest.FixtureRequest
    ) -> None:
        skip_unless_offered(model, "run_training")
        inputs, truth = _read_samples(model, request.getfixturevalue("dataset"))
        assert len(model.run_training(5, [(inputs, truth)] * 2)) == 2

    def test_inference_steps_give_the_outputs(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "run_inference")
        found = model.run_inference(2)
        assert len(found) == 2
        for outputs in found:
            model.io.check_outputs(outputs)
        again = model.run_inference(2)
        assert_batches_equal(again[0], found[0])
        assert_batches_equal(again[1], found[1])
        given = model.run_inference(3, repeat((batch, {})))
        assert len(given) == 3
        for outputs in given:
            assert_batches_equal(outputs, run_batch(model, batch))

    # -- a whole training -------------------------------------------------------------------------

    def test_training_reports_every_epoch_and_learns(
        self, model: LiveModel, options: TrainingOptions, request: pytest.FixtureRequest
    ) -> None:
        skip_unless_offered(model, "train")
        seen: list[str] = []

        def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
            seen.append(what)
            return items

        history = model.train(request.getfixturevalue("dataset"), options, progress)
        assert isinstance(history, TrainingHistory)
        assert len(history.epochs) == options.num_epochs
        for epoch in history.epochs:
            assert {"loss", "validation_loss"} <= epoch.keys()
            assert all(
                isinstance(value, float) and math.isfinite(value) for value in epoch.values()
            )
        assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
        assert seen, "a training shows its progress"
        assert id(model.native) not in find_reachable(vars(model.wrapper)), (
            "the wrapper holds the network that was trained"
        )

    def test_the_seed_decides_a_training(
        self,
        model: LiveModel,
        options: TrainingOptions,
        batch: Batch,
        request: pytest.FixtureRequest,
    ) -> None:
        skip_unless_offered(model, "train")
        dataset = request.getfixturevalue("dataset")
        # Existing weights may be trained further; these models have none yet.
        first, second, third = open_twin(model), open_twin(model), open_twin(model)
        history = first.train(dataset, options)
        assert second.train(dataset, options) == history
        assert_batches_equal(run_batch(second, batch), run_batch(first, batch))
        others = options.to_json() | {"seed": options.seed + 1}
        assert third.train(dataset, TrainingOptions.from_json(others)) != history

    def test_training_writes_curves_that_tensorboard_reads(
        self,
        model: LiveModel,
        options: TrainingOptions,
        tmp_path: Path,
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        skip_unless_offered(model, "train")
        # TensorBoard reads files with TensorFlow if it is installed, and importing that takes ten
        # seconds.
        monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
        options = TrainingOptions.from_json(options.to_json() | {"logdir": str(tmp_path / "logs")})
        history = model.train(request.getfixturevalue("dataset"), options)
        found = read_curves(tmp_path / "logs")
        # The names of single outputs' losses contain the outputs' names.
        losses = [
            value
            for tag, values in found.items()
            if "loss" in tag and tag.count("/") == 1
            for value in values
        ]
        assert len(losses) == 2 * options.num_epochs, (
            "one curve of losses for training, one for validation"
        )
        expected = [epoch[name] for epoch in history.epochs for name in ("loss", "validation_loss")]
        # event files hold float32
        np.testing.assert_allclose(sorted(losses), sorted(expected), rtol=1e-5)

    def test_an_interrupted_training_ends_with_the_interruption(
        self, model: LiveModel, options: TrainingOptions, request: pytest.FixtureRequest
    ) -> None:
        skip_unless_offered(model, "train")

        def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
            yield next(iter(items))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.train(request.getfixturevalue("dataset"), options, progress)

    # -- fitting a data set -----------------------------------------------------------------------

    def test_what_the_data_set_gives_is_what_the_model_takes(
        self, model: LiveModel, request: pytest.FixtureRequest
    ) -> None:
        skip_unless_offered(model, "train")
        dataset: Dataset = request.getfixturevalue("dataset")
        dataset.prepare()
        fitted = model.wrapper.for_dataset(dataset.spec)
        raw, truth = dataset.read(dataset.split("train")[:3])
        kept = {name: array.copy() for name, array in raw.items()}
        inputs = fitted.preprocess(dataset.preprocess(raw))
        assert_batches_equal(raw, kept)
        assert get_batch_size(inputs) == 3
        predictions = dataset.postprocess(fitted.postprocess(run_batch(fitted.open(), inputs)))
        dataset.evaluate(predictions, truth)


def read_curves(logdir: Path) -> dict[str, list[float]]:
    """Return the scalars of TensorBoard event files by folder and tag, read by TensorBoard
    itself.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, list[float]] = {}
    for folder in sorted({path.parent for path in logdir.rglob("*tfevents*")}):
        events = EventAccumulator(str(folder)).Reload()
        for tag in events.Tags()["scalars"]:
            found[f"{folder.relative_to(logdir)}/{tag}"] = [
                event.value for event in events.Scalars(tag)
            ]
    return found


def _read_samples(model: LiveModel, dataset: Dataset) -> tuple[Batch, Batch]:
    dataset.prepare()
    inputs, truth = dataset.read(dataset.split("train")[:16])
    return model.wrapper.preprocess(dataset.preprocess(inputs)), truth
