"""Batches of a data set's split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import InputTransform, transform_from
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.experiment.module import Stateful
from nnpipe.training.sequences._content_digest import compute_digest
from nnpipe.training.sequences.sequence import Sequence, Stream, require_positive


class DatasetSequence(Sequence):
    """Batches of a split of a :class:`~nnpipe.core.dataset.Dataset`, with inputs and truth by name.

    The data set is prepared when the first batch is requested.  The order and the
    augmentation follow from the seed, the epoch and the place in the epoch.

    Parameters
    ----------
    dataset
        The source of the samples; its own ``preprocess`` is applied.
    split
        ``"train"``, ``"validation"`` or ``"test"``.
    batch
        Number of samples in a batch.  A single remaining sample joins the last batch,
        since batch normalisation cannot learn from one sample.
    shuffle
        Whether each epoch has a different order.
    seed
        Seed of the order and the augmentation.
    prepare
        Takes the data set's inputs ``{name: array}`` and returns those of the model.
    augment
        Takes the model's inputs and a generator, and returns augmented inputs.
    prefixes
        Prefixes of the names of inputs and of truth in a batch.
    only
        Classes by the name of the truth, such as ``{label: [5, 6, 7]}``: other samples are left
        out, and the classes become 0, 1 and so on in this order.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str = "train",
        *,
        batch: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        prepare: Callable[[Any], Any] | None = None,
        augment: Callable[[Any, np.random.Generator], Any] | None = None,
        prefixes: tuple[str, str] = ("", ""),
        only: Mapping[str, SequenceOf[int]] | None = None,
    ) -> None:
        check_call(DatasetSequence, locals())
        super().__init__()
        self._dataset = dataset
        self._split = split
        self._batch = require_positive("batch", batch)
        self._shuffle = shuffle
        self._seed = seed
        self._prepare = prepare
        self._augment = augment
        self._prefixes = prefixes
        self._only = {
            name: np.asarray(list(classes), np.int64) for name, classes in (only or {}).items()
        }

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Return none: a data set has no state."""
        return iter(())

    @cached_property
    def _indices(self) -> np.ndarray:
        self._dataset.prepare()
        indices = self._dataset.split(self._split)
        for name, classes in self._only.items():
            parts = [
                self._dataset.read(indices[start:stop])[1]
                for start, stop in compute_cuts(len(indices), 256)
            ]
            if any(name not in part for part in parts):
                raise ConfigError(
                    f"DatasetSequence: only names {name!r}; there are {', '.join(parts[0])}"
                )
            labels = (
                np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, np.int64)
            )
            indices = indices[np.isin(labels, classes)]
        return indices

    def _map_labels(self, name: str, labels: Any) -> Any:
        if name not in self._only:
            return labels
        classes = self._only[name]
        order = np.argsort(classes, kind="stable")
        return order[np.searchsorted(classes[order], labels)]

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        return [end - start for start, end in compute_cuts(len(self._indices), self._batch)]

    def settings(self) -> dict[str, Any]:
        """Return how samples are ordered and cut, and a digest of some of them."""
        indices = self._indices
        some = indices[
            np.unique(np.linspace(0, len(indices) - 1, min(len(indices), 8)).astype(np.int64))
        ]
        inputs, truth = self._dataset.read(some) if len(some) else ({}, {})
        return {
            "dataset": hide_settings_secrets(self._dataset.describe()),
            "split": self._split,
            "samples": len(indices),
            "batch": self._batch,
            "shuffle": self._shuffle,
            "seed": self._seed,
            **(
                {"only": {name: classes.tolist() for name, classes in self._only.items()}}
                if self._only
                else {}
            ),
            "content": compute_digest(
                {"": indices} | {f"input {n}": v for n, v in inputs.items()} | dict(truth)
            ),
        }

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of batches before it."""
        indices, begin = self._indices, position or 0
        if self._shuffle:
            indices = np.random.default_rng([self._seed, epoch]).permutation(indices)
        of_inputs, of_truth = self._prefixes
        for number, (start, end) in enumerate(
            compute_cuts(len(indices), self._batch)[begin:], begin + 1
        ):
            raw, truth = self._dataset.read(indices[start:end])
            inputs = self._dataset.preprocess(raw)
            if self._prepare is not None:
                inputs = self._prepare(inputs)
            if self._augment is not None:
                inputs = self._augment(inputs, np.random.default_rng([self._seed, epoch, start]))
            batch = {of_inputs + name: array for name, array in inputs.items()}
            batch |= {
                of_truth + name: self._map_labels(name, array) for name, array in truth.items()
            }
            yield batch | {"sample_id": np.asarray(indices[start:end], np.int64)}, number


def compute_cuts(count: int, size: int) -> list[tuple[int, int]]:
    """Return start and stop of each batch; a single remaining sample joins the last batch."""
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


@dataclass(frozen=True, kw_only=True)
class ApplyTransforms:
    """Applies a transform to some inputs, such as :class:`~nnpipe.transforms.log_mel.MFCC` to
    sounds.

    Parameters
    ----------
    transforms
        The transform of each input by its name; other inputs stay as they are.
    """

    transforms: Mapping[str, InputTransform]

    def __post_init__(self) -> None:
        check_call(ApplyTransforms, vars(self))

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs after their transforms."""
        return _apply_transforms(self.transforms, inputs)


@dataclass(frozen=True, kw_only=True)
class ApplyDeclaredTransforms:
    """Applies the transforms that a data set declares, such as the coding of a table's columns.

    Parameters
    ----------
    dataset
        The data set, whose training samples they are fitted to.
    """

    dataset: Dataset

    def __post_init__(self) -> None:
        check_call(ApplyDeclaredTransforms, vars(self))

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs after their transforms."""
        return _apply_transforms(self._transforms, inputs)

    @cached_property
    def _transforms(self) -> dict[str, InputTransform]:
        self.dataset.prepare()
        return {name: transform_from(found) for name, found in self.dataset.spec.transforms.items()}


def _apply_transforms(
    transforms: Mapping[str, InputTransform], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    for name in transforms:
        if name not in inputs:
            raise ConfigError(
                f"there is no input {name!r} to transform; there are {', '.join(inputs)}"
            )
    return {
        name: transforms[name].apply(array) if name in transforms else array
        for name, array in inputs.items()
    }
