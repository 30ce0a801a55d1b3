"""The losses of all samples in all epochs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import replacing
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._epoch_losses import KeepsLosses, epoch_means
from nnpipe.training.callbacks.worst_samples import relative
from nnpipe.training.callbacks.writing_callback import folder_of, new_figure, save_figure
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_ROWS, _COLUMNS = 600, 400


class SampleLosses(KeepsLosses):
    """Write the loss of each sample in each epoch, and draw all of them as one picture.

    For each split, ``tables/losses-DATASET-SPLIT.npz`` holds ``sample_id`` ``(n,)``, ``epoch`` ``(epochs,)`` and
    ``loss``, float32 ``(n, epochs)``, NaN for an epoch without the sample.  In the picture of the same name the worst
    samples are on top, by the score of :class:`~nnpipe.training.callbacks.worst_samples.WorstSamples`; of many samples,
    neighbours share a row with their mean.  Both are written at the end, and every ``every`` epochs.

    It keeps four bytes for each sample and epoch, in memory and in a file beside the checkpoints.

    Parameters
    ----------
    every
        Write every so many epochs.
    output
        The output whose losses count; by default the sum over all.
    most
        The greatest number of samples of a split; with more, the training stops.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackWorstSamplesByEpoch",)

    def __init__(self, every: int = 10, output: str | None = None, most: int = 1_000_000) -> None:
        check_call(SampleLosses, locals())
        if every < 1 or most < 1:
            raise ConfigError(f"SampleLosses: every and most take 1 or more, not {every} and {most}")
        self.every = every
        self.output = output
        self.most = most
        # By split: ids and losses of this epoch's batches; and a row for each epoch before.
        self.state = State(waiting={}, epochs={})

    def on_epoch_end(self, fit: Fit) -> None:
        """Add a row for the epoch, and write every ``every`` epochs."""
        for split, kept in self.state.waiting.items():
            ids, losses = epoch_means(kept)
            if len(ids) > self.most:
                raise ConfigError(f"SampleLosses: {split} has {len(ids):,} samples, more than most={self.most:,}")
            rows = self.state.epochs.setdefault(split, AppendOnly())
            known = _ids(rows)
            same = known is not None and np.array_equal(known, ids)
            rows.append({"epoch": fit.epoch, "ids": None if same else ids, "losses": losses.astype(np.float32)})
        self.state.waiting = {}
        if fit.epoch % self.every == 0:
            self._write(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Write all epochs."""
        self._write(fit)

    def _write(self, fit: Fit) -> None:
        for split, rows in self.state.epochs.items():
            ids, epochs, losses = whole(rows)
            name = file_name("losses", *split.split("/"))
            with replacing(folder_of(fit).table(name, ending="npz")) as path, path.open("wb") as file:
                np.savez_compressed(file, sample_id=ids, epoch=epochs, loss=losses)
            self._draw(fit, name, split, epochs, losses)

    def _draw(self, fit: Fit, name: str, split: str, epochs: np.ndarray, losses: np.ndarray) -> None:
        scores = np.stack([relative(np.nan_to_num(column.astype(np.float64))) for column in losses.T]).mean(0)
        ranked = losses[np.argsort(-scores, kind="stable")]
        shown = np.unique(np.linspace(0, len(epochs) - 1, min(len(epochs), _COLUMNS)).astype(np.int64))
        bounds = np.unique(np.linspace(0, len(ranked), min(len(ranked), _ROWS) + 1).astype(np.int64))
        parts = [ranked[start:stop, shown] for start, stop in itertools.pairwise(bounds.tolist())]
        image = np.stack([_mean(part) for part in parts])
        known = image[np.isfinite(image)]
        picture = new_figure(7, 6)
        axes = picture.subplots()
        limit = float(np.quantile(known, 0.99)) if len(known) else 1.0
        extent = (epochs[0] - 0.5, epochs[-1] + 0.5, len(ranked), 0)
        drawn = axes.imshow(
            image, aspect="auto", interpolation="nearest", cmap="magma", vmin=0, vmax=limit or 1.0, extent=extent
        )
        picture.colorbar(drawn, ax=axes, label="loss", extend="max")
        axes.set(xlabel="epoch", ylabel="samples by rank, the worst on top", facecolor="lightgrey")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(f"losses of all {len(ranked):,} samples of {split}", fontsize=10)
        save_figure(fit, name, picture)


def _ids(rows: Any) -> np.ndarray | None:
    return next((row["ids"] for row in reversed(rows) if row["ids"] is not None), None)


def whole(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids ``(n,)``, epochs ``(epochs,)`` and losses, float32 ``(n, epochs)``, from the rows of epochs."""
    ids = np.unique(np.concatenate([row["ids"] for row in rows if row["ids"] is not None]))
    losses = np.full((len(ids), len(rows)), np.nan, np.float32)
    present = ids
    for column, row in enumerate(rows):
        present = present if row["ids"] is None else row["ids"]
        losses[np.searchsorted(ids, present), column] = row["losses"]
    return ids, np.array([row["epoch"] for row in rows], np.int64), losses


def _mean(part: np.ndarray) -> np.ndarray:
    """Return the mean over samples ``(n, epochs)`` without those that are NaN."""
    there = np.isfinite(part)
    counts = there.sum(0)
    return np.where(counts > 0, np.where(there, part, 0).sum(0) / np.maximum(counts, 1), np.nan)
