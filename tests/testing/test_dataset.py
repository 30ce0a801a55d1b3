"""The contract of data sets holds for a plain one, and catches each way to break it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.testing.dataset import DatasetContract

LABELS = np.arange(30, dtype=np.int64) % 3


class Plain(InMemoryDataset):
    """Thirty numbers and whether each leaves 0, 1 or 2 when divided by three."""

    def load(self) -> Samples:
        return Samples(
            {"number": np.arange(30, dtype=np.float32)[:, None]},
            {"label": LABELS.copy()},
            ("0", "1", "2"),
        )


class TestPlain(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self) -> Dataset:
        return Plain(validation_fraction=0.2)


class Unsplit(Dataset):
    """A data set that offers no more than it must."""

    @property
    def spec(self) -> DatasetSpec:
        return DatasetSpec(
            "naming",
            (TensorSpec("x", (None, 2), "int8"),),
            (TensorSpec("name", (None,), "int32"),),
            ("only",),
        )

    def prepare(self) -> None:
        if not self.dataset_root.joinpath("file").is_file():
            raise DatasetError(f"{self.dataset_root / 'file'} is not there")

    def __len__(self) -> int:
        return 4

    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        if not np.all((indices >= 0) & (indices < 4)):
            raise DatasetError(f"no such sample among {indices}")
        return {"x": np.stack([indices, indices]).T.astype(np.int8)}, {
            "name": indices.astype(np.int32)
        }

    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        if predictions["name"].shape != truth["name"].shape:
            raise DatasetError("one name a sample is needed")
        return Evaluation("naming", {"right": predictions["name"] == truth["name"]}, ("only",))


class TestUnsplit(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        (tmp_path / "file").touch()
        return Unsplit(dataset_root=tmp_path)

    def perfect(self, dataset: Dataset, truth: Batch) -> Batch:
        return truth


class _WrongType(Plain):
    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        inputs, truth = super().read(indices)
        return {"number": inputs["number"].astype(np.float64)}, truth


class _Sorted(Plain):
    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        return super().read(np.sort(indices))


class _Wrapping(Plain):
    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        return super().read(np.asarray(indices) % 30)


class _Lending(Plain):
    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        inputs, truth = super().read(indices)
        if len(indices) == 1:
            start = int(indices[0])
            return {
                name: array[start : start + 1] for name, array in self.samples.inputs.items()
            }, truth
        return inputs, truth


class _Leaking(Plain):
    def split(self, name: str) -> np.ndarray:
        return np.concatenate([super().split(name), super().split("test")])


class _Losing(Plain):
    def split(self, name: str) -> np.ndarray:
        return super().split(name)[1:]


class _SharingSplits(Plain):
    def split(self, name: str) -> np.ndarray:
        super().split(name)
        return self._splits[name]


class _Forgiving(Plain):
    def split(self, name: str) -> np.ndarray:
        return super().split(name if name in ("train", "validation", "test") else "train")


class _Unsteady(Plain):
    def load(self) -> Samples:
        samples = super().load()
        return Samples(
            {"number": np.random.default_rng().random((30, 1), np.float32)},
            samples.targets,
            ("0", "1", "2"),
        )


class _Swapping(Plain):
    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        return super().evaluate({"scores": predictions["scores"][::-1]}, truth)


class _Averaging(Plain):
    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        right = super().evaluate(predictions, truth).arrays["rank"] == 0
        return Evaluation("classification", {"accuracy": np.array([right.mean()])}, ("0", "1", "2"))


class _NamelessClasses(Plain):
    @property
    def spec(self) -> DatasetSpec:
        spec = super().spec
        return DatasetSpec(spec.task, spec.inputs, spec.targets, ("a", "a", ""))


class _Unwritable(Plain):
    def origin(self) -> Mapping[str, Any]:
        return {"path": Path("x")}


class _Careless(Plain):
    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        return Evaluation("classification", {"truth": truth["label"]}, ("0", "1", "2"))


@pytest.mark.parametrize(
    ("dataset", "test"),
    [
        (_WrongType, "test_samples_are_as_specified_in_the_order_asked_for"),
        (_Sorted, "test_samples_are_as_specified_in_the_order_asked_for"),
        (_Wrapping, "test_an_index_that_does_not_exist_is_refused"),
        (_Lending, "test_what_is_read_belongs_to_the_caller"),
        (_Leaking, "test_splits_share_nothing_and_hold_everything"),
        (_Losing, "test_splits_share_nothing_and_hold_everything"),
        (_SharingSplits, "test_splits_are_the_same_every_time_and_belong_to_the_caller"),
        (_Forgiving, "test_an_unknown_split_is_refused"),
        (_Unsteady, "test_a_twin_gives_the_same_samples"),
        (_Swapping, "test_a_perfect_classifier_makes_no_mistake"),
        (_Averaging, "test_every_evaluated_sample_counts_once"),
        (_NamelessClasses, "test_its_specification_is_complete"),
        (_Unwritable, "test_its_origin_can_be_written_down"),
        (_Careless, "test_predictions_of_the_wrong_shape_are_refused"),
    ],
)
def test_a_broken_data_set_is_caught(dataset: type[Dataset], test: str) -> None:
    method = getattr(DatasetContract(), test)
    assert list(inspect.signature(method).parameters) == ["prepared"]
    method(Plain())  # the same test passes for one that is right
    with pytest.raises((AssertionError, pytest.fail.Exception, SpecMismatch, TypeError)):
        method(dataset())


def test_files_made_up_silently_are_caught(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception):
        DatasetContract().test_missing_files_are_one_line_that_names_them(Plain(), tmp_path)
