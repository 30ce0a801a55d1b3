"""The samples that the model finds hardest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._epoch_losses import KeepsLosses, epoch_means
from nnpipe.training.callbacks._sample_access import called, image_of, samples_of, show_images
from nnpipe.training.callbacks.writing_callback import (
    heat_map,
    new_figure,
    save_figure,
    write_table,
    writes_after,
)
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class WorstSamples(KeepsLosses):
    """Rank samples by how much larger their loss is than others', over all epochs: wrong labels come first.

    A sample's score is its relative loss, averaged over the epochs.  The relative
    loss is the loss before the step that learns from the sample, divided by the
    mean loss of all samples in that epoch.  Once the model has learned a hard
    sample, its loss is no larger than others'.  A wrong label contradicts the other
    samples, so its relative loss grows until the model memorises it.  Dividing by
    the mean gives all epochs the same weight: in a plain sum of losses the first
    epochs, in which everything is new, would outweigh all others.  Like the area
    under the margin (Pleiss et al., 2020) and forgetting events (Toneva et al.,
    2019) it needs only the training itself; unlike them, it needs no classes.  An
    epoch without the sample counts as 0.

    The ranking is reliable after ten epochs or more, if the model has learned the training samples;
    before that, many samples are hard.

    There is one ranking for the training samples of each data set, and one for each
    evaluated split.  For each it writes ``tables/worst-DATASET-SPLIT.json``, a
    picture of the same name with the losses by epoch, and, at the end, if samples
    are pictures, ``worst-DATASET-SPLIT-samples.png``.

    During an epoch, one number for each sample is kept on the device.

    Parameters
    ----------
    count
        Number of samples to list.
    output
        The output whose losses count; by default the sum over all.
    classes
        Names of the classes; by default captions have their numbers.
    """

    frameworks = ("torch", "keras")
    draws = True

    def __init__(self, count: int = 20, output: str | None = None, classes: Sequence[str] = ()) -> None:
        check_call(WorstSamples, locals())
        self.count = count
        self.classes = tuple(classes)
        self.output = output
        # By split: ids and losses of this epoch's batches; sums by sample; and for
        # each epoch after which files are written the losses of its worst samples.
        self.state = State(waiting={}, sums={}, epochs={})

    def on_epoch_end(self, fit: Fit) -> None:
        """Add the epoch's losses to the sums, and write tables and heat maps."""
        state = self.state
        for split, kept in state.waiting.items():
            unique, means = epoch_means(kept)
            before = state.sums.get(split)
            # Older checkpoints hold a row for each epoch instead.
            epochs = 1 + (before or {}).get("epochs", len(state.epochs.get(split, [])))
            state.sums[split] = _added(before, unique, relative(means)) | {"epochs": epochs}
            if not writes_after(fit):
                continue
            worst = np.argsort(-means, kind="stable")[: 10 * self.count]
            # For each epoch, the losses of the samples that are worst so far are kept, whatever they are in this epoch.
            so_far = np.searchsorted(unique, self._ranking(split)[0])
            so_far = so_far[so_far < len(unique)]
            kept_here = np.union1d(worst, so_far)
            row = {"epoch": fit.epoch, "ids": unique[kept_here], "losses": means[kept_here]}
            state.epochs.setdefault(split, AppendOnly()).append(row)
            self._write(fit, split)
        state.waiting = {}

    def _ranking(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        sums = self.state.sums[split]
        order = np.argsort(-sums["losses"], kind="stable")[: self.count]
        epochs = sums.get("epochs") or max(1, len(self.state.epochs.get(split, [])))
        return sums["ids"][order], sums["losses"][order] / epochs

    def _write(self, fit: Fit, split: str) -> None:
        ids, scores = self._ranking(split)
        epochs = self.state.epochs[split]
        losses = np.full((len(ids), len(epochs)), np.nan)
        for column, row in enumerate(epochs):
            _, own, there = np.intersect1d(ids, row["ids"], return_indices=True)
            losses[own, column] = row["losses"][there]
        name = file_name("worst", *split.split("/"))
        write_table(
            fit,
            name,
            (
                {"rank": n + 1, "sample_id": int(ids[n]), "score": float(scores[n]), "losses": losses[n].tolist()}
                for n in range(len(ids))
            ),
        )
        picture = new_figure(7, 1.5 + 0.2 * len(ids))
        axes = picture.subplots()
        heat_map(
            axes,
            losses,
            [str(own) for own in ids],
            [str(row["epoch"]) for row in epochs],
            label="loss",
            colours="magma",
        )
        axes.set(xlabel="epoch", ylabel="sample id", facecolor="lightgrey")
        grey = "; grey: not among the worst of that epoch" if np.isnan(losses).any() else ""
        axes.set_title(f"worst samples of {split}, the worst on top{grey}", fontsize=10)
        save_figure(fit, name, picture)

    def on_fit_end(self, fit: Fit) -> None:
        """Draw the worst samples."""
        for split in self.state.sums:
            dataset, part = split.split("/")
            ids, scores = self._ranking(split)
            if part not in fit.datasets[dataset]:
                continue
            trained = part in fit.options.train_splits
            found = samples_of(fit.datasets[dataset][part], fit.epoch if trained else 0, ids.tolist())
            drawn = [(own, image_of(found[own]), scores[n]) for n, own in enumerate(ids.tolist()) if own in found]
            images = [(own, image, score) for own, image, score in drawn if image is not None]
            if not images:
                continue
            columns = min(5, len(images))
            picture = new_figure(1.6 * columns, 1.9 * -(-len(images) // columns))
            titles = [f"{own}{_labels(found[own], self.classes)}\nscore {score:.3g}" for own, _, score in images]
            show_images(picture, [image for _, image, _ in images], titles, columns)
            save_figure(fit, file_name("worst", dataset, part, "samples"), picture)


def relative(losses: np.ndarray) -> np.ndarray:
    """Return the losses ``(n,)`` of an epoch as multiples of their mean.

    If some are negative, the least loss is subtracted from all first.  A loss that is
    not finite becomes ``n``, as if all others were 0.
    """
    finite = np.isfinite(losses)
    if not finite.any():
        return np.full(len(losses), float(len(losses)))
    known = losses[finite]
    least = min(0.0, float(known.min()))
    mean = float(known.mean()) - least
    shares = (losses - least) / mean if mean > 0 else np.zeros(len(losses))
    return np.where(finite, shares, float(len(losses)))


def _added(sums: dict[str, Any] | None, ids: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Add losses to sums by sample, both in ascending order of ids."""
    if sums is None:
        return {"ids": ids, "losses": losses}
    if np.array_equal(sums["ids"], ids):
        return {"ids": ids, "losses": sums["losses"] + losses}
    both, place = np.unique(np.concatenate([sums["ids"], ids]), return_inverse=True)
    return {"ids": both, "losses": np.bincount(place, weights=np.concatenate([sums["losses"], losses]))}


def _labels(sample: dict[str, Any], classes: Sequence[str]) -> str:
    """Return the whole numbers of a sample, which are usually its labels."""
    found = [
        called(n, v, classes)
        for n, v in sample.items()
        if isinstance(v, np.ndarray) and v.ndim == 0 and v.dtype.kind in "iu"
    ]
    return f": {', '.join(found)}" if found else ""
