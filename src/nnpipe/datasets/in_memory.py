"""The base of data sets that fit into memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._split import DrawnSplitsDataset, compute_array_groups
from nnpipe.tasks.classification.task import Classification


@dataclass(frozen=True, eq=False)
class Samples:
    """All samples of a data set.

    Attributes
    ----------
    inputs, targets
        Arrays ``(n, ...)`` by tensor name.  The target of a classification is
        ``"label"``, ``(n,)`` int64.
    class_names
        Class names in order of their numbers.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test
        samples; ``None`` without one.
    """

    inputs: Mapping[str, npt.NDArray[np.generic]]
    targets: Mapping[str, npt.NDArray[np.generic]]
    class_names: tuple[str, ...] = ()
    official: npt.NDArray[np.integer] | None = None

    def __post_init__(self) -> None:
        check_call(Samples, vars(self))

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


class InMemoryDataset(DrawnSplitsDataset):
    """Base of data sets that are loaded as a whole.

    A subclass writes :meth:`load`, and ``download`` if its files can be
    downloaded.  For tasks other than classification it also writes ``spec``.
    """

    @abstractmethod
    def load(self) -> Samples:
        """Return all samples from ``dataset_root``, without using the network.

        Raises
        ------
        DatasetError
            If a file is missing or damaged; the message names it.
        """

    @cached_property
    def samples(self) -> Samples:
        """All samples, loaded at the first use; they must not be changed."""
        return self.load()

    def prepare(self) -> None:
        """Download the files if asked for, then load all samples."""
        if self.download_dataset:
            self.download()
        _ = self.samples

    @property
    def spec(self) -> DatasetSpec:
        """The specification of inputs and targets, derived from the samples."""
        return DatasetSpec(
            Classification.name,
            inputs=tuple(map(_make_spec, self.samples.inputs.items())),
            targets=tuple(map(_make_spec, self.samples.targets.items())),
            class_names=self.samples.class_names,
        )

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return copies of some samples: inputs and targets."""
        indices = check_indices(indices, len(self.samples))
        return (
            {name: array[indices] for name, array in self.samples.inputs.items()},
            {name: array[indices] for name, array in self.samples.targets.items()},
        )

    @property
    def strata(self) -> npt.NDArray[np.integer]:
        """The classes, if there are any."""
        labels = self.samples.targets.get("label")
        return np.zeros(len(self), np.int64) if labels is None else np.asarray(labels, np.int64)

    @property
    def official(self) -> npt.NDArray[np.integer] | None:
        """The published split."""
        return self.samples.official

    def groups(self) -> npt.NDArray[np.int64]:
        """Return numbers that are equal for samples with equal inputs."""
        return compute_array_groups(self.samples.inputs.values())


def check_indices(indices: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Return indices as int64, after a check that all are from 0 to ``count - 1``.

    Raises
    ------
    DatasetError
        If one is out of range; numpy would treat -1 as the last sample.
    """
    array = np.asarray(indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DatasetError(
            f"samples are chosen by a vector of integers, not by {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < count):
        bad = array[(array < 0) | (array >= count)][0]
        raise DatasetError(f"there is no sample {bad}; the {count} samples are numbered from 0")
    return array.astype(np.int64)


def make_image_classification_spec(
    height: int, width: int, channels: int, class_names: tuple[str, ...], brightest: int = 255
) -> DatasetSpec:
    """Return the spec of images ``"image"``, uint8 ``(None, height, width, channels)``, with a
    class ``"label"``.
    """
    return DatasetSpec(
        Classification.name,
        inputs=(TensorSpec("image", (None, height, width, channels), "uint8"),),
        targets=(TensorSpec("label", (None,), "int64"),),
        class_names=class_names,
        ranges={} if brightest == 255 else {"image": (0.0, float(brightest))},
    )


def _make_spec(item: tuple[str, npt.NDArray[np.generic]]) -> TensorSpec:
    name, array = item
    return TensorSpec(name, (None, *array.shape[1:]), array.dtype.name)
