"""The interface of data sets: samples, and the evaluation of predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import DatasetError, NotSupported
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.messages import list_names
from nnpipe.core.task import Task, get_task
from nnpipe.core.tensors import Batch, DatasetSpec

SPLITS = ("train", "validation", "test")


class Dataset(Component):
    """Samples with their truth, in three disjoint splits.

    ``read`` may be called from several threads at once.  The arrays that it
    returns belong to the caller.  Nothing is read from the disk before ``prepare``.

    Examples
    --------
    A data set of four points, each with its class.  For data that fit into memory, see
    :class:`nnpipe.datasets.in_memory.InMemoryDataset`.

    >>> from nnpipe import Dataset, DatasetSpec, TensorSpec
    >>> from nnpipe.tasks import Classification
    >>> class Points(Dataset):
    ...     spec = DatasetSpec(
    ...         Classification.name, (TensorSpec("x", (None, 1), "float32"),), (TensorSpec("label", (None,), "int64"),),
    ...         ("positive", "negative"),
    ...     )
    ...     def prepare(self):
    ...         pass
    ...     def __len__(self):
    ...         return 4
    ...     def read(self, indices):
    ...         x = np.array([-2, -1, 1, 2], np.float32)[indices, None]
    ...         return {"x": x}, {"label": (x[:, 0] < 0).astype(np.int64)}
    >>> inputs, truth = Points().read(np.array([0, 3]))
    >>> inputs["x"].ravel(), truth["label"]
    (array([-2.,  2.], dtype=float32), array([1, 0]))
    >>> Points().evaluate({"scores": np.array([[0.1, 0.9], [0.2, 0.8]])}, truth).arrays["predicted"]
    array([1, 1], dtype=int32)
    """

    dataset_root: Path = argument(
        Path("data"), help="folder that holds, or will hold, the data set's files"
    )
    download_dataset: bool = argument(
        False, help="fetch the data set if it is not in --dataset-root"
    )
    split_seed: int = argument(
        0, help="seed of the random split where the data set has no official one", minimum=0
    )
    validation_fraction: float = argument(
        0.1, help="part of the training samples kept for validation", minimum=0.0, maximum=1.0
    )
    test_fraction: float = argument(
        0.2,
        help="part of the samples kept for testing where there is no official test set",
        minimum=0.0,
        maximum=1.0,
    )

    @property
    @abstractmethod
    def spec(self) -> DatasetSpec:
        """The task, tensors and classes.

        If these depend on the files, :meth:`prepare` must be called first.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Check that the data are present and complete; download them if ``download_dataset`` is
        true.

        Raises
        ------
        DatasetError
            If a file is missing or damaged; the message names it and says how to get it.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples in all splits."""

    @abstractmethod
    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        """Return the inputs and the truth of samples, in the order of ``indices``.

        Parameters
        ----------
        indices
            ``(n,)`` integers in ``[0, len(self))``.

        Returns
        -------
        inputs, truth
            Arrays by tensor name, with the shapes and element types of ``spec`` and ``n`` samples
            each.
        """

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """How the data are understood, a line each: by default the classes.

        What a data set finds in files and nobody said, such as splits and the kinds of columns, is
        told before work begins, and kept in results.  :meth:`prepare` must be called first.
        """
        names = self.spec.class_names
        return (f"{len(names):,} classes: {list_names(names)}",) if names else ()

    @property
    def task(self) -> Task:
        """The task of ``spec``, which judges predictions; a data set may return it with other
        arguments.
        """
        return get_task(self.spec.task)

    @property
    def is_stream(self) -> bool:
        """Whether samples follow from one another, so that what a model keeps passes from each
        to the next.
        """
        return False

    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        """Reduce the predictions and truth of a batch to the arrays that quality metrics need."""
        return self.task.evaluate(predictions, truth, self.spec)

    def judge_predictions(self, predictions: Batch, truth: Batch) -> Evaluation:
        """Return the evaluation of a batch of postprocessed predictions.

        Whatever :meth:`evaluate` does, samples whose predictions are not finite are marked in it.
        """
        found = self.evaluate(predictions, truth)
        return found.mark_not_finite(self.task.without_answer(predictions, len(found)))

    def download(self) -> None:
        """Download the files to ``dataset_root``."""
        raise NotSupported(
            f"{type(self).__name__} cannot be downloaded; put its files into {self.dataset_root}"
        )

    def split(self, name: str) -> np.ndarray:
        """Return the indices of ``"train"``, ``"validation"`` or ``"test"``, as ``(n,)`` int64.

        The three are disjoint and together hold every sample.  The same seed
        gives the same splits on every machine.
        """
        raise NotSupported(f"{type(self).__name__} has no split {name!r}")

    def preprocess(self, inputs: Batch) -> Batch:
        """Transform raw inputs before the model's own preprocessing; nothing by default."""
        return inputs

    def postprocess(self, predictions: Batch) -> Batch:
        """Transform the model's predictions before they are evaluated; nothing by default."""
        return predictions

    def batches(self, indices: np.ndarray, size: int) -> Iterator[tuple[Batch, Batch]]:
        """Read samples in batches of ``size``; the last one may be smaller."""
        for start in range(0, len(indices), size):
            inputs, truth = self.read(indices[start : start + size])
            yield self.preprocess(inputs), truth

    def calibration(self, count: int, seed: int = 0) -> Iterator[Batch]:
        """Yield ``count`` batches of one training sample, drawn at random by ``seed``, to calibrate
        quantisers.

        Raises
        ------
        DatasetError
            If the training split is empty.
        """
        train = self.split("train")
        if not len(train):
            raise DatasetError(
                f"{type(self).__name__}: its split 'train' is empty, and calibration takes its "
                f"samples from there; "
                "leave some to it (--test-fraction, --validation-fraction), or put some into its "
                "folder"
            )
        chosen = np.random.default_rng(seed).permutation(train)[:count]
        for inputs, _ in self.batches(chosen, 1):
            yield inputs

    def origin(self) -> Mapping[str, Any]:
        """Return the source and the licence of the data, for result files."""
        return {}
