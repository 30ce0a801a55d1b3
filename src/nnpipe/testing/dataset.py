"""The contract of data sets.

Tests of optional methods are skipped if the data set does not offer them (see
:func:`~nnpipe.core.component.is_overridden`).
"""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnpipe.core.component import Component, is_overridden
from nnpipe.core.dataset import SPLITS, Dataset
from nnpipe.core.errors import MissingDependency, NNPipeError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import has_class_scores
from nnpipe.core.tensors import Batch, check_batch
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.runtime import hide_packages
from nnpipe.testing.session import assert_one_line


class DatasetContract(ComponentContract):
    """What every data set must do; subclass it and define the fixture ``dataset``.

    The data set must be ready: its files exist, and nothing needs to be downloaded.
    Use a small one for quick tests; a dozen samples are enough.

    For a task other than classification, also define ``perfect``: predictions that
    agree with the truth completely.

    Attributes
    ----------
    needs_files
        Whether an empty ``dataset_root`` must be an error; false for a data set that
        is part of its package or generated.
    """

    needs_files: bool = True

    @pytest.fixture
    def dataset(self) -> Dataset:
        raise NotImplementedError("a subclass of DatasetContract gives the fixture `dataset`")

    @pytest.fixture
    def component(self, dataset: Dataset) -> Component:
        return dataset

    @pytest.fixture
    def prepared(self, dataset: Dataset) -> Dataset:
        dataset.prepare()
        return dataset

    def perfect(self, dataset: Dataset, truth: Batch) -> Batch:
        """Return predictions for some samples that agree with the truth completely."""
        return dict(dataset.task.perfect(truth, dataset.spec))

    # -- what it says of itself -----------------------------------------------------------------

    def test_its_specification_is_complete(self, prepared: Dataset) -> None:
        spec = prepared.spec
        assert spec.task
        assert spec.inputs
        assert spec.targets
        names = [tensor.name for tensor in (*spec.inputs, *spec.targets)]
        assert len(set(names)) == len(names)
        assert all(tensor.shape[:1] == (None,) for tensor in (*spec.inputs, *spec.targets))
        assert len(set(spec.class_names)) == len(spec.class_names)
        assert all(isinstance(name, str) and name for name in spec.class_names)
        if has_class_scores(prepared.spec.task):
            assert [(target.name, target.shape, target.dtype) for target in spec.targets] == [
                ("label", (None,), "int64")
            ]
            assert len(spec.class_names) >= 2

    def test_its_origin_can_be_written_down(self, prepared: Dataset) -> None:
        origin = dict(prepared.origin())
        assert json.loads(json.dumps(origin, allow_nan=False)) == origin

    # -- samples --------------------------------------------------------------------------------

    def test_samples_are_as_specified_in_the_order_asked_for(self, prepared: Dataset) -> None:
        indices = np.array([0, len(prepared) - 1, 0])
        inputs, truth = prepared.read(indices)
        check_batch(prepared.spec.inputs, inputs, "input")
        check_batch(prepared.spec.targets, truth, "target")
        for place, index in enumerate(indices):
            alone = prepared.read(np.array([index]))
            for together, single in zip((inputs, truth), alone, strict=True):
                for name, array in together.items():
                    # A batch of samples of different sizes is padded.
                    places = (slice(place, place + 1), *map(slice, single[name].shape[1:]))
                    own = array[places]
                    np.testing.assert_array_equal(own, single[name])

    def test_no_indices_give_no_samples(self, prepared: Dataset) -> None:
        for batch, specs in zip(
            prepared.read(np.array([], np.int64)),
            (prepared.spec.inputs, prepared.spec.targets),
            strict=True,
        ):
            check_batch(specs, batch)
            assert all(len(array) == 0 for array in batch.values())

    def test_an_index_that_does_not_exist_is_refused(self, prepared: Dataset) -> None:
        for index in (len(prepared), -1):
            with pytest.raises(NNPipeError, match=str(index)) as caught:
                prepared.read(np.array([0, index]))
            assert_one_line(caught.value)

    def test_what_is_read_belongs_to_the_caller(self, prepared: Dataset) -> None:
        first = prepared.read(np.array([0]))
        for batch in first:
            for array in batch.values():
                array[...] = 0 if np.any(array) else 1
        again = prepared.read(np.array([0]))
        for batch, other in zip(first, again, strict=True):
            for name, array in batch.items():
                assert not np.array_equal(array, other[name]), f"{name} is shared with the data set"

    def test_a_twin_gives_the_same_samples(self, prepared: Dataset) -> None:
        twin = dataclasses.replace(prepared)
        twin.prepare()
        assert len(twin) == len(prepared)
        indices = np.unique(np.linspace(0, len(prepared) - 1, 10).astype(np.int64))
        _assert_equal(twin.read(indices), prepared.read(indices))

    def test_several_threads_read_at_once(self, prepared: Dataset) -> None:
        chosen = [np.arange(start, len(prepared), 4)[:8] for start in range(min(4, len(prepared)))]
        expected = [prepared.read(indices) for indices in chosen]
        failures: list[BaseException] = []

        def read_again(indices: npt.NDArray[np.int64], wanted: tuple[Batch, Batch]) -> None:
            try:
                for _ in range(3):
                    _assert_equal(prepared.read(indices), wanted)
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=read_again, args=pair)
            for pair in zip(chosen, expected, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]

    def test_batches_hold_all_samples_once(self, prepared: Dataset) -> None:
        indices = np.arange(min(7, len(prepared)))
        sizes = []
        for inputs, truth in prepared.batches(indices, 3):
            assert {len(array) for array in (*inputs.values(), *truth.values())} == {
                len(next(iter(truth.values())))
            }
            sizes.append(len(next(iter(truth.values()))))
        assert sum(sizes) == len(indices)
        assert all(size == 3 for size in sizes[:-1])

    # -- splits ---------------------------------------------------------------------------------

    def test_splits_share_nothing_and_hold_everything(self, prepared: Dataset) -> None:
        _skip_unless_split(prepared)
        splits = [prepared.split(name) for name in SPLITS]
        assert all(split.dtype == np.int64 and split.ndim == 1 for split in splits)
        together = np.concatenate(splits)
        np.testing.assert_array_equal(np.sort(together), np.arange(len(prepared)))

    def test_splits_are_the_same_every_time_and_belong_to_the_caller(
        self, prepared: Dataset
    ) -> None:
        _skip_unless_split(prepared)
        twin = dataclasses.replace(prepared)
        twin.prepare()
        for name in SPLITS:
            before = prepared.split(name).copy()
            np.testing.assert_array_equal(twin.split(name), before)
            prepared.split(name)[...] = -1
            np.testing.assert_array_equal(prepared.split(name), before)

    def test_an_unknown_split_is_refused(self, prepared: Dataset) -> None:
        _skip_unless_split(prepared)
        with pytest.raises(NNPipeError, match="no_such_split") as caught:
            prepared.split("no_such_split")
        assert_one_line(caught.value)

    def test_without_fractions_nothing_is_drawn_from_the_training_samples(
        self, prepared: Dataset
    ) -> None:
        _skip_unless_split(prepared)
        plain = dataclasses.replace(prepared, validation_fraction=0.0, test_fraction=0.0)
        plain.prepare()
        assert set(prepared.split("train")) <= set(plain.split("train"))

    def test_calibration_gives_single_training_samples(self, prepared: Dataset) -> None:
        _skip_unless_split(prepared)
        train = prepared.split("train")
        if not len(train):
            pytest.skip(f"{type(prepared).__name__} has no training samples")
        count = min(3, len(train))
        drawn = list(prepared.calibration(count, seed=1))
        assert len(drawn) == count
        again = list(prepared.calibration(count, seed=1))
        for one, other in zip(drawn, again, strict=True):
            _assert_equal((one,), (other,))
            assert {len(array) for array in one.values()} == {1}

    # -- judging --------------------------------------------------------------------------------

    def test_every_evaluated_sample_counts_once(self, prepared: Dataset) -> None:
        indices = np.arange(min(20, len(prepared)))
        whole = self._evaluate(prepared, indices)
        assert whole.task == prepared.spec.task
        assert len(whole) == len(indices)
        half = len(indices) // 2
        parts = Evaluation.concat(
            [self._evaluate(prepared, part) for part in (indices[:half], indices[half:])]
        )
        assert parts.class_names == whole.class_names
        _assert_equal((parts.arrays,), (whole.arrays,))

    def test_a_perfect_classifier_makes_no_mistake(self, prepared: Dataset) -> None:
        if not has_class_scores(prepared.spec.task):
            pytest.skip("its models do not score classes")
        indices = np.arange(min(20, len(prepared)))
        judged = self._evaluate(prepared, indices)
        truth = prepared.read(indices)[1]["label"]
        np.testing.assert_array_equal(judged.arrays["truth"], truth)
        np.testing.assert_array_equal(judged.arrays["predicted"], truth)
        assert not np.any(judged.arrays["rank"])
        assert judged.class_names == prepared.spec.class_names

    def test_predictions_of_the_wrong_shape_are_refused(self, prepared: Dataset) -> None:
        truth = prepared.read(np.array([0]))[1]
        wrong = {
            name: np.zeros((1, 3, 5, 7, 2), np.float32) for name in self.perfect(prepared, truth)
        }
        with pytest.raises(NNPipeError) as caught:
            prepared.evaluate(wrong, truth)
        assert_one_line(caught.value)

    def _evaluate(self, dataset: Dataset, indices: npt.NDArray[Any]) -> Evaluation:
        truth = dataset.read(indices)[1]
        return dataset.evaluate(self.perfect(dataset, truth), truth)

    # -- files ----------------------------------------------------------------------------------

    def test_missing_files_are_one_line_that_names_them(
        self, dataset: Dataset, tmp_path: Path
    ) -> None:
        if not self.needs_files:
            pytest.skip(f"{type(dataset).__name__} needs no files")
        empty = tmp_path / "empty"
        empty.mkdir()
        for root in (empty, empty / "absent"):
            with pytest.raises(NNPipeError) as caught:
                dataclasses.replace(dataset, dataset_root=root, download_dataset=False).prepare()
            assert_one_line(caught.value)
            assert str(root) in str(caught.value)
        assert list(empty.iterdir()) == []

    def test_a_missing_package_says_what_to_install(
        self, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not dataset.requires:
            pytest.skip(f"{type(dataset).__name__} needs no package")
        hide_packages(monkeypatch)
        with pytest.raises(MissingDependency, match="pip install") as caught:
            dataset.prepare()
        assert_one_line(caught.value)


def _skip_unless_split(dataset: Dataset) -> None:
    if not is_overridden(dataset, "split", Dataset):
        pytest.skip(f"{type(dataset).__name__} has no splits")


def _assert_equal(have: tuple[Batch, ...], want: tuple[Batch, ...]) -> None:
    for some, others in zip(have, want, strict=True):
        assert list(some) == list(others)
        for name, array in some.items():
            np.testing.assert_array_equal(array, others[name])
