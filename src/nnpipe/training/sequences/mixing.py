"""Mixing the samples of a batch: mixup and CutMix, which teach a model shares of classes.

They are functions for ``sequence.map(MixUp(classes=10), each="batch", seed=1)``.  What they draw
depends on the seed, the epoch and the ids of the batch, so that batches are the same with any
number of workers and after a kill.  Labels become shares of classes, float32 ``(n, classes)``,
which :class:`~nnpipe.training.outputs.classification.ClassificationOutput` takes as targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.sequence import Batch


@dataclass(frozen=True, kw_only=True)
class _Mixing:
    classes: int
    features: tuple[str, ...] = ("input",)
    label: str = "label"
    alpha: float = 1.0
    probability: float = 1.0

    def _check(self) -> None:
        if self.classes < 2 or not self.alpha > 0:
            raise ConfigError(
                f"{type(self).__name__} takes two classes or more, and an alpha above 0"
            )

    def _draw_partners(
        self, batch: Batch, randoms: Sequence[np.random.Generator]
    ) -> tuple[Any, np.ndarray, float]:
        """Return the generator, the partner of each sample ``(n,)``, and the share that samples
        keep.
        """
        for name in (*self.features, self.label):
            if not isinstance(batch.get(name), np.ndarray):
                raise ConfigError(
                    f"{type(self).__name__}: {name!r} is no array of one shape; the batch has "
                    f"{', '.join(batch)}"
                )
        random = randoms[0]
        partners = random.permutation(len(batch["sample_id"]))
        share = (
            float(random.beta(self.alpha, self.alpha))
            if random.random() < self.probability
            else 1.0
        )
        return random, partners, share

    def _mix_labels(self, batch: Batch, partners: np.ndarray, share: float) -> np.ndarray:
        labels = batch[self.label]
        if labels.ndim == 1:
            if (
                labels.dtype.kind not in "iu"
                or labels.min(initial=0) < 0
                or labels.max(initial=0) >= self.classes
            ):
                raise ConfigError(f"{self.label!r} is not all classes from 0 to {self.classes - 1}")
            labels = np.eye(self.classes, dtype=np.float32)[labels]
        mixed: np.ndarray = share * labels + (1 - share) * labels[partners]
        return mixed.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class MixUp(_Mixing):
    """Adds to each sample a part of another one of its batch (Zhang et al., "mixup", 2018).

    Parameters
    ----------
    classes
        Number of classes.
    features
        Names of the features to mix, of real numbers.
    label
        The feature of classes ``(n,)``, or of shares of classes ``(n, classes)``.
    alpha
        Both parameters of the beta distribution of the share that a sample keeps.
    probability
        The probability that a batch is mixed.
    """

    def __post_init__(self) -> None:
        check_call(MixUp, vars(self))
        self._check()

    def __call__(self, batch: Batch, randoms: Sequence[np.random.Generator]) -> Batch:
        """Return the mixed batch."""
        _, partners, share = self._draw_partners(batch, randoms)
        found = dict(batch)
        for name in self.features:
            array = batch[name]
            if array.dtype.kind != "f":
                raise ConfigError(f"MixUp needs real numbers; {name!r} is {array.dtype}")
            found[name] = array * array.dtype.type(share) + array[partners] * array.dtype.type(
                1 - share
            )
        return found | {self.label: self._mix_labels(batch, partners, share)}


@dataclass(frozen=True, kw_only=True)
class CutMix(_Mixing):
    """Puts a rectangle of another sample of its batch into each sample (Yun et al., "CutMix",
    2019).

    Labels are mixed by the area.  Features are ``(n, ..., height, width)``, such as pictures and
    their masks.

    Parameters
    ----------
    classes, label, probability
        As in :class:`MixUp`.
    features
        Names of the features to change, all of one height and width.
    alpha
        Both parameters of the beta distribution of the area that stays.
    """

    def __post_init__(self) -> None:
        check_call(CutMix, vars(self))
        self._check()

    def __call__(self, batch: Batch, randoms: Sequence[np.random.Generator]) -> Batch:
        """Return the mixed batch."""
        random, partners, share = self._draw_partners(batch, randoms)
        sizes = {batch[name].shape[-2:] for name in self.features}
        if len(sizes) != 1 or any(batch[name].ndim < 3 for name in self.features):
            raise ConfigError(
                f"CutMix: {', '.join(self.features)} must have one height and width; found "
                f"{sorted(sizes)}"
            )
        ((height, width),) = sizes
        cut = (1 - share) ** 0.5
        bounds = []
        for extent in (height, width):
            middle, half = random.integers(extent), extent * cut / 2
            bounds.append(slice(max(0, round(middle - half)), min(extent, round(middle + half))))
        found, rows, columns = dict(batch), *bounds
        for name in self.features:
            array = batch[name].copy()
            array[..., rows, columns] = batch[name][partners][..., rows, columns]
            found[name] = array
        kept = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
        return found | {self.label: self._mix_labels(batch, partners, kept)}
