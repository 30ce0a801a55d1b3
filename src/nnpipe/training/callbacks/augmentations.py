"""Pictures of augmented samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.training.callbacks._sample_access import image_of, samples_of, show_images
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class Augmentations(WritingCallback):
    """Draw training samples as they were in several epochs: a row for each sample, a column for each epoch.

    It reads the sequence once for each column when the training ends, so it costs
    as many epochs of loading.  Without augmentation, the pictures of a row are equal.  Writes
    ``pictures/augmentations-DATASET-SPLIT.png``.

    Parameters
    ----------
    ids
        Ids of the samples to draw.
    epochs
        Number of epochs, from the first on.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingAugmentations",)

    def __init__(self, ids: tuple[int, ...] = (0, 1, 2, 3), epochs: int = 5) -> None:
        check_call(Augmentations, locals())
        self.ids = tuple(ids)
        self.epochs = epochs

    def on_fit_end(self, fit: Fit) -> None:
        """Collect and draw the samples."""
        for dataset, parts in fit.datasets.items():
            for split in fit.options.train_splits:
                if split in parts:
                    self._draw(fit, dataset, split, parts[split])

    def _draw(self, fit: Fit, dataset: str, split: str, sequence: Any) -> None:
        epochs = range(1, self.epochs + 1)
        found = [samples_of(sequence, epoch, self.ids) for epoch in epochs]
        images, titles = [], []
        for own in self.ids:
            for epoch, samples in zip(epochs, found, strict=True):
                image = image_of(samples[own]) if own in samples else None
                images.append(np.full((4, 4), 0.5) if image is None else image)
                titles.append(f"id {own}, epoch {epoch}" + ("" if own in samples else ": not in it"))
        if any(image_of(sample) is not None for samples in found for sample in samples.values()):
            picture = new_figure(1.6 * self.epochs, 1.8 * len(self.ids))
            show_images(picture, images, titles, self.epochs)
            save_figure(fit, file_name("augmentations", dataset, split), picture)
