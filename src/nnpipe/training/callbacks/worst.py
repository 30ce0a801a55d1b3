"""The samples that the model finds hardest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.experiment.state import State
from nnpipe.training.callbacks._arrays import joined
from nnpipe.training.callbacks._samples import image_of, samples_of, show_images
from nnpipe.training.callbacks._writing import (
    WritingCallback,
    file_name,
    heat_map,
    new_figure,
    save_figure,
    write_table,
)

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class WorstSamples(WritingCallback):
    """Rank samples by their losses, added up over all epochs: wrong labels come first.

    Of each data set, one ranking for the samples that are learned from and one
    for each split that is evaluated.  For each it writes
    ``tables/worst-DATASET-SPLIT.json``, a picture of the losses by epoch of the
    same name, and, where samples look like pictures, ``worst-DATASET-SPLIT-samples.png``
    at the end.

    One number a sample is kept on the device through an epoch.

    Parameters
    ----------
    count
        How many to rank.
    output
        The output whose losses count; by default the sum over all.
    """

    frameworks = ("torch", "keras")
    draws = True

    def __init__(self, count: int = 20, output: str | None = None) -> None:
        self.count = count
        self.output = output
        # By split: ids and losses of this epoch's batches; sums by sample; and for
        # each epoch the losses of those that were worst in it.
        self.state = State(waiting={}, sums={}, epochs={})

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Keep the losses of a training batch."""
        self._keep(f"{fit.dataset}/{'+'.join(fit.options.train_splits)}", batch, outputs)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Keep the losses of a batch that is evaluated."""
        self._keep(f"{dataset}/{split}", batch, outputs)

    def _keep(self, split: str, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        chosen = outputs.values() if self.output is None else [outputs[self.output]] if self.output in outputs else []
        losses: Any = None
        for output in chosen:
            own = output.losses if isinstance(output.losses, np.ndarray) else output.losses.detach().float()
            own = own * output.scale
            losses = own if losses is None else losses + own
        if losses is not None:
            self.state.waiting.setdefault(split, []).append([batch["sample_id"], losses])

    def on_epoch_end(self, fit: Fit) -> None:
        """Add the epoch's losses up, and write tables and heat maps."""
        state = self.state
        for split, kept in state.waiting.items():
            ids = np.concatenate([np.asarray(own) for own, _ in kept]).astype(np.int64)
            losses = joined([own for _, own in kept]).astype(np.float64)
            # A sample may come up several times in an epoch: its mean counts.
            unique, place, times = np.unique(ids, return_inverse=True, return_counts=True)
            means = np.bincount(place, weights=losses) / times
            state.sums[split] = _added(state.sums.get(split), unique, means)
            worst = np.argsort(-means, kind="stable")[: 10 * self.count]
            # Those that are worst so far are kept of each epoch, whatever they lost in this one.
            so_far = np.searchsorted(unique, self._ranking(split)[0])
            so_far = so_far[so_far < len(unique)]
            kept_here = np.union1d(worst, so_far)
            row = {"epoch": fit.epoch, "ids": unique[kept_here], "losses": means[kept_here]}
            state.epochs[split] = [*state.epochs.get(split, []), row]
            self._write(fit, split)
        state.waiting = {}

    def _ranking(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        sums = self.state.sums[split]
        order = np.argsort(-sums["losses"], kind="stable")[: self.count]
        return sums["ids"][order], sums["losses"][order]

    def _write(self, fit: Fit, split: str) -> None:
        ids, sums = self._ranking(split)
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
                {"rank": n + 1, "sample_id": int(ids[n]), "sum": float(sums[n]), "losses": losses[n].tolist()}
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
        axes.set(title=f"worst samples of {split}, the worst on top", xlabel="epoch", ylabel="sample id")
        save_figure(fit, name, picture)

    def on_fit_end(self, fit: Fit) -> None:
        """Draw the samples themselves."""
        for split in self.state.sums:
            dataset, part = split.split("/")
            ids, sums = self._ranking(split)
            if part not in fit.datasets[dataset]:
                continue
            trained = part in fit.options.train_splits
            found = samples_of(fit.datasets[dataset][part], fit.epoch if trained else 0, ids.tolist())
            drawn = [(own, image_of(found[own]), sums[n]) for n, own in enumerate(ids.tolist()) if own in found]
            images = [(own, image, total) for own, image, total in drawn if image is not None]
            if not images:
                continue
            columns = min(5, len(images))
            picture = new_figure(1.6 * columns, 1.9 * -(-len(images) // columns))
            titles = [f"{own}{_labels(found[own])}\nloss sum {total:.3g}" for own, _, total in images]
            show_images(picture, [image for _, image, _ in images], titles, columns)
            save_figure(fit, file_name("worst", dataset, part, "samples"), picture)


def _added(sums: dict[str, Any] | None, ids: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Add losses to sums by sample, both in ascending order of ids."""
    if sums is None:
        return {"ids": ids, "losses": losses}
    if np.array_equal(sums["ids"], ids):
        return {"ids": ids, "losses": sums["losses"] + losses}
    both, place = np.unique(np.concatenate([sums["ids"], ids]), return_inverse=True)
    return {"ids": both, "losses": np.bincount(place, weights=np.concatenate([sums["losses"], losses]))}


def _labels(sample: dict[str, Any]) -> str:
    """Give the whole numbers of a sample, which are labels as a rule."""
    found = [
        f"{n} {v}" for n, v in sample.items() if isinstance(v, np.ndarray) and v.ndim == 0 and v.dtype.kind in "iu"
    ]
    return f": {', '.join(found)}" if found else ""
