"""The losses of all samples in all epochs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import replace_atomically
from nnpipe.experiment.state import AppendOnly, State
from nnpipe.training.callbacks._arrays import join_arrays
from nnpipe.training.callbacks.callback import (
    WritingCallback,
    create_figure,
    draw_heat_map,
    get_run_folder,
    is_write_due,
    save_figure,
    write_table,
)
from nnpipe.training.callbacks.samples import find_image, format_label, get_samples, show_images
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


def sample_losses(outputs: Mapping[str, Any], output: str | None) -> Any:
    """Return the losses ``(n,)`` of a batch, scaled as in the sum that is minimised; None if the
    output is not there.

    Parameters
    ----------
    outputs
        The outputs of the batch by name.
    output
        The output whose losses count; None for the sum over all.
    """
    chosen = outputs.values() if output is None else [outputs[output]] if output in outputs else []
    losses: Any = None
    for each in chosen:
        own = each.losses if isinstance(each.losses, np.ndarray) else each.losses.detach().float()
        own = own * each.scale
        losses = own if losses is None else losses + own
    return losses


def compute_epoch_means(kept: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, ascending, and the mean loss of each, float64, from the ids and losses of
    batches.
    """
    ids = np.concatenate([np.asarray(own) for own, _ in kept]).astype(np.int64)
    losses = join_arrays([own for _, own in kept]).astype(np.float64)
    # A sample may occur several times in an epoch; then the mean of its losses counts.
    unique, place, times = np.unique(ids, return_inverse=True, return_counts=True)
    return unique, np.bincount(place, weights=losses) / times


class KeepsLosses(WritingCallback):
    """Base of callbacks that need the loss of each sample, once in an epoch.

    A subclass sets ``output``, whose losses count, or None for the sum over all, and a state with
    ``waiting``: by split, the ids and losses of this epoch's batches.
    """

    abstract: ClassVar[bool] = True
    output: str | None
    state: State

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Keep the losses of a training batch."""
        self._record_losses(f"{fit.dataset}/{'+'.join(fit.options.train_splits)}", batch, outputs)

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Keep the losses of an evaluated batch."""
        self._record_losses(f"{dataset}/{split}", batch, outputs)

    def _record_losses(self, split: str, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        losses = sample_losses(outputs, self.output)
        if losses is not None:
            self.state.waiting.setdefault(split, []).append([batch["sample_id"], losses])


class WorstSamples(KeepsLosses):
    """Rank samples by how much larger their loss is than others', over all epochs: wrong labels
    come first.

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

    def __init__(
        self, count: int = 20, output: str | None = None, classes: Sequence[str] = ()
    ) -> None:
        check_call(WorstSamples, locals())
        self.count = count
        self.classes = tuple(classes)
        self.output = output
        # By split: ids and losses of this epoch's batches; sums by sample; and for
        # each epoch after which files are written the losses of its worst samples.
        self.state = State(waiting={}, sums={}, epochs={})

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Add the epoch's losses to the sums, and write tables and heat maps."""
        state = self.state
        for split, kept in state.waiting.items():
            unique, means = compute_epoch_means(kept)
            before = state.sums.get(split)
            # Older checkpoints hold a row for each epoch instead.
            epochs = 1 + (before or {}).get("epochs", len(state.epochs.get(split, [])))
            state.sums[split] = _add_losses(before, unique, normalize_by_mean(means)) | {
                "epochs": epochs
            }
            if not is_write_due(fit):
                continue
            worst = np.argsort(-means, kind="stable")[: 10 * self.count]
            # For each epoch, the losses of the samples that are worst so far are kept, whatever
            # they are in this epoch.
            so_far = np.searchsorted(unique, self._rank_samples(split)[0])
            so_far = so_far[so_far < len(unique)]
            kept_here = np.union1d(worst, so_far)
            row = {"epoch": fit.epoch, "ids": unique[kept_here], "losses": means[kept_here]}
            state.epochs.setdefault(split, AppendOnly()).append(row)
            self._write(fit, split)
        state.waiting = {}

    def _rank_samples(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        sums = self.state.sums[split]
        order = np.argsort(-sums["losses"], kind="stable")[: self.count]
        epochs = sums.get("epochs") or max(1, len(self.state.epochs.get(split, [])))
        return sums["ids"][order], sums["losses"][order] / epochs

    def _write(self, fit: TrainingRun, split: str) -> None:
        ids, scores = self._rank_samples(split)
        epochs = self.state.epochs[split]
        losses = np.full((len(ids), len(epochs)), np.nan)
        for column, row in enumerate(epochs):
            _, own, there = np.intersect1d(ids, row["ids"], return_indices=True)
            losses[own, column] = row["losses"][there]
        name = make_file_name("worst", *split.split("/"))
        write_table(
            fit,
            name,
            (
                {
                    "rank": n + 1,
                    "sample_id": int(ids[n]),
                    "score": float(scores[n]),
                    "losses": losses[n].tolist(),
                }
                for n in range(len(ids))
            ),
        )
        picture = create_figure(7, 1.5 + 0.2 * len(ids))
        axes = picture.subplots()
        draw_heat_map(
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

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Draw the worst samples."""
        for split in self.state.sums:
            dataset, part = split.split("/")
            ids, scores = self._rank_samples(split)
            if part not in fit.datasets[dataset]:
                continue
            trained = part in fit.options.train_splits
            found = get_samples(
                fit.datasets[dataset][part], fit.epoch if trained else 0, ids.tolist()
            )
            drawn = [
                (own, find_image(found[own]), scores[n])
                for n, own in enumerate(ids.tolist())
                if own in found
            ]
            images = [(own, image, score) for own, image, score in drawn if image is not None]
            if not images:
                continue
            columns = min(5, len(images))
            picture = create_figure(1.6 * columns, 1.9 * -(-len(images) // columns))
            titles = [
                f"{own}{_format_labels(found[own], self.classes)}\nscore {score:.3g}"
                for own, _, score in images
            ]
            show_images(picture, [image for _, image, _ in images], titles, columns)
            save_figure(fit, make_file_name("worst", dataset, part, "samples"), picture)


def normalize_by_mean(losses: np.ndarray) -> np.ndarray:
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


def _add_losses(sums: dict[str, Any] | None, ids: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Add losses to sums by sample, both in ascending order of ids."""
    if sums is None:
        return {"ids": ids, "losses": losses}
    if np.array_equal(sums["ids"], ids):
        return {"ids": ids, "losses": sums["losses"] + losses}
    both, place = np.unique(np.concatenate([sums["ids"], ids]), return_inverse=True)
    return {
        "ids": both,
        "losses": np.bincount(place, weights=np.concatenate([sums["losses"], losses])),
    }


def _format_labels(sample: dict[str, Any], classes: Sequence[str]) -> str:
    """Return the whole numbers of a sample, which are usually its labels."""
    found = [
        format_label(n, v, classes)
        for n, v in sample.items()
        if isinstance(v, np.ndarray) and v.ndim == 0 and v.dtype.kind in "iu"
    ]
    return f": {', '.join(found)}" if found else ""


_ROWS, _COLUMNS = 600, 400


class SampleLosses(KeepsLosses):
    """Write the loss of each sample in each epoch, and draw all of them as one picture.

    For each split, ``tables/losses-DATASET-SPLIT.npz`` holds ``sample_id`` ``(n,)``, ``epoch``
    ``(epochs,)`` and ``loss``, float32 ``(n, epochs)``, NaN for an epoch without the sample.  In
    the picture of the same name the worst samples are on top, by the score of
    :class:`~nnpipe.training.callbacks.sample_losses.WorstSamples`; of many samples, neighbours
    share a row with their mean.  Both are written at the end, and every ``every`` epochs.

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
            raise ConfigError(
                f"SampleLosses: every and most take 1 or more, not {every} and {most}"
            )
        self.every = every
        self.output = output
        self.most = most
        # By split: ids and losses of this epoch's batches; and a row for each epoch before.
        self.state = State(waiting={}, epochs={})

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Add a row for the epoch, and write every ``every`` epochs."""
        for split, kept in self.state.waiting.items():
            ids, losses = compute_epoch_means(kept)
            if len(ids) > self.most:
                raise ConfigError(
                    f"SampleLosses: {split} has {len(ids):,} samples, more than most={self.most:,}"
                )
            rows = self.state.epochs.setdefault(split, AppendOnly())
            known = _find_ids(rows)
            same = known is not None and np.array_equal(known, ids)
            rows.append(
                {
                    "epoch": fit.epoch,
                    "ids": None if same else ids,
                    "losses": losses.astype(np.float32),
                }
            )
        self.state.waiting = {}
        if fit.epoch % self.every == 0:
            self._write(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write all epochs."""
        self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        for split, rows in self.state.epochs.items():
            ids, epochs, losses = build_loss_matrix(rows)
            name = make_file_name("losses", *split.split("/"))
            with (
                replace_atomically(get_run_folder(fit).table(name, ending="npz")) as path,
                path.open("wb") as file,
            ):
                np.savez_compressed(file, sample_id=ids, epoch=epochs, loss=losses)
            self._draw(fit, name, split, epochs, losses)

    def _draw(
        self, fit: TrainingRun, name: str, split: str, epochs: np.ndarray, losses: np.ndarray
    ) -> None:
        scores = np.stack(
            [normalize_by_mean(np.nan_to_num(column.astype(np.float64))) for column in losses.T]
        ).mean(0)
        ranked = losses[np.argsort(-scores, kind="stable")]
        shown = np.unique(
            np.linspace(0, len(epochs) - 1, min(len(epochs), _COLUMNS)).astype(np.int64)
        )
        bounds = np.unique(
            np.linspace(0, len(ranked), min(len(ranked), _ROWS) + 1).astype(np.int64)
        )
        parts = [ranked[start:stop, shown] for start, stop in itertools.pairwise(bounds.tolist())]
        image = np.stack([_compute_mean(part) for part in parts])
        known = image[np.isfinite(image)]
        picture = create_figure(7, 6)
        axes = picture.subplots()
        limit = float(np.quantile(known, 0.99)) if len(known) else 1.0
        extent = (epochs[0] - 0.5, epochs[-1] + 0.5, len(ranked), 0)
        drawn = axes.imshow(
            image,
            aspect="auto",
            interpolation="nearest",
            cmap="magma",
            vmin=0,
            vmax=limit or 1.0,
            extent=extent,
        )
        picture.colorbar(drawn, ax=axes, label="loss", extend="max")
        axes.set(xlabel="epoch", ylabel="samples by rank, the worst on top", facecolor="lightgrey")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(f"losses of all {len(ranked):,} samples of {split}", fontsize=10)
        save_figure(fit, name, picture)


def _find_ids(rows: Any) -> np.ndarray | None:
    return next((row["ids"] for row in reversed(rows) if row["ids"] is not None), None)


def build_loss_matrix(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids ``(n,)``, epochs ``(epochs,)`` and losses, float32 ``(n, epochs)``, from the
    rows of epochs.
    """
    ids = np.unique(np.concatenate([row["ids"] for row in rows if row["ids"] is not None]))
    losses = np.full((len(ids), len(rows)), np.nan, np.float32)
    present = ids
    for column, row in enumerate(rows):
        present = present if row["ids"] is None else row["ids"]
        losses[np.searchsorted(ids, present), column] = row["losses"]
    return ids, np.array([row["epoch"] for row in rows], np.int64), losses


def _compute_mean(part: np.ndarray) -> np.ndarray:
    """Return the mean over samples ``(n, epochs)`` without those that are NaN."""
    there = np.isfinite(part)
    counts = there.sum(0)
    return np.where(counts > 0, np.where(there, part, 0).sum(0) / np.maximum(counts, 1), np.nan)
