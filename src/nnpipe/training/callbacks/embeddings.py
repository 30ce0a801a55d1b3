"""Pictures of samples in a model's feature space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import replace_atomically
from nnpipe.training.callbacks.callback import (
    WritingCallback,
    create_figure,
    get_run_folder,
    save_figure,
)
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class Embeddings(WritingCallback):
    """Draw the features of each evaluated split on their two principal axes, coloured by label.

    Features come from outputs of type
    :class:`~nnpipe.training.outputs.embedding.EmbeddingOutput` in the last
    evaluation.  Writes ``pictures/embeddings-DATASET-SPLIT-OUTPUT.png`` and
    ``tables/embeddings-DATASET-SPLIT-OUTPUT.npz`` with ``name``, ``sample_id``,
    ``features`` and, if there are any, ``labels``.

    Parameters
    ----------
    count
        The greatest number of samples to keep; the first ones are kept.
    """

    draws = True
    describes_weights = True

    def __init__(self, count: int = 2000) -> None:
        check_call(Embeddings, locals())
        self.count = count
        self._kept: dict[tuple[str, str, str], list[Any]] = {}
        self._epoch = 0

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Keep the features of a batch until there are ``count`` samples."""
        if self._epoch != fit.epoch:
            self._epoch, self._kept = fit.epoch, {}
        for name, output in outputs.items():
            if not isinstance(output, EmbeddingOutput):
                continue
            kept = self._kept.setdefault((dataset, split, name), [])
            room = self.count - sum(len(ids) for ids, _, _ in kept)
            if room > 0:
                ids = np.asarray(batch["sample_id"])[:room]
                features = output.output.detach()[:room].flatten(1)
                kept.append(
                    (ids, features, None if output.target is None else output.target[:room])
                )

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the features of the epoch's evaluation."""
        import torch

        for key, kept in self._kept.items():
            arrays = {
                "name": np.array("/".join(key)),
                "sample_id": np.concatenate([ids for ids, _, _ in kept]),
                "features": torch.cat([features for _, features, _ in kept]).float().cpu().numpy(),
            }
            if all(labels is not None for _, _, labels in kept):
                arrays["labels"] = torch.cat([labels for _, _, labels in kept]).cpu().numpy()
            name = make_file_name("embeddings", *key)
            with (
                replace_atomically(get_run_folder(fit).table(name, ending="npz")) as path,
                path.open("wb") as file,
            ):
                np.savez_compressed(file, **arrays)
            self._draw(fit, name, arrays)
        self._kept = {}

    def _draw(self, fit: TrainingRun, name: str, arrays: dict[str, np.ndarray]) -> None:
        places, shares = compute_principal_axes(arrays["features"])
        picture = create_figure(6, 5)
        axes = picture.subplots()
        labels = arrays.get("labels")
        told = labels if labels is not None and labels.ndim == 1 else None
        few = (
            told is not None
            and told.dtype.kind in "iu"
            and 0 <= told.min(initial=0) <= told.max(initial=0) < 10
        )
        # Each class has a colour; its number is in the middle of the colour's range.
        limits = (
            {"cmap": "tab10", "vmin": -0.5, "vmax": 9.5}
            if few
            else {"cmap": "viridis"}
            if told is not None
            else {}
        )
        drawn = axes.scatter(places[:, 0], places[:, 1], s=6, c=told, **limits)
        if told is not None:
            bar = picture.colorbar(drawn, ax=axes, label="label")
            if few:
                bar.set_ticks(range(10))
                bar.ax.set_ylim(-0.5, told.max(initial=0) + 0.5)
        axes.set(
            title=f"{arrays['name']}, epoch {fit.epoch}",
            xlabel=f"first main axis, {shares[0]:.0%} of the variance",
            ylabel=f"second main axis, {shares[1]:.0%}",
        )
        save_figure(fit, name, picture)


def compute_principal_axes(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates ``(n, 2)`` on the two principal axes, and each axis's share of the
    variance ``(2,)``.

    The sign of each axis is chosen so that its largest weight is positive.
    """
    centred = features.astype(np.float64) - features.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes, sizes = axes[:2], sizes**2
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    places = centred @ (axes * signs[:, None]).T
    shares = sizes[:2] / max(sizes.sum(), np.finfo(np.float64).tiny)
    missing = 2 - len(shares)
    return np.pad(places, ((0, 0), (0, missing))), np.pad(shares, (0, missing))
