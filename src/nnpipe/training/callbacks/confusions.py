"""Lists of the most common confusions of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.training.callbacks._arrays import joined
from nnpipe.training.callbacks._sample_access import image_of, samples_of, show_images
from nnpipe.training.callbacks.writing_callback import (
    WritingCallback,
    is_last,
    new_figure,
    save_figure,
    write_table,
    writes_after,
)
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class Confusions(WritingCallback):
    """List the errors of the last evaluation, the most common confusions first, with the samples.

    For each output with classes and each evaluated split it writes
    ``tables/confusions-DATASET-SPLIT-OUTPUT.json``.  If samples are pictures, it
    also draws, at the end, one sample of each of the most common confusions.

    It keeps the predicted class and the target of each sample of one evaluation.

    Parameters
    ----------
    count
        Number of confusions to list.
    classes
        Names of the classes; by default their numbers.
    samples
        Number of sample ids to list for each confusion.
    """

    frameworks = ("torch", "keras")
    draws = True
    describes_weights = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingClassificationErrors",)

    def __init__(self, count: int = 20, classes: Sequence[str] = (), samples: int = 10) -> None:
        check_call(Confusions, locals())
        self.count = count
        self.classes = tuple(classes)
        self.samples = samples
        self._kept: dict[tuple[str, str, str], list[Any]] = {}
        self._epoch = 0

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Keep the prediction and the target of each sample."""
        if self._epoch != fit.epoch:
            self._epoch, self._kept = fit.epoch, {}
        for name, output in outputs.items():
            if isinstance(output, ClassificationOutput):
                kept = self._kept.setdefault((dataset, split, name), [])
                kept.append((np.asarray(batch["sample_id"]), output.predictions(), output.true_classes))

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the tables of the last evaluation, and the pictures at the last epoch."""
        if not writes_after(fit):
            return
        for (dataset, split, name), kept in self._kept.items():
            ids = np.concatenate([own for own, _, _ in kept])
            said = joined([own for _, own, _ in kept])
            true = joined([own for _, _, own in kept])
            rows = self._rows(ids, said, true)
            file = file_name("confusions", dataset, split, name)
            write_table(fit, file, rows)
            if is_last(fit):
                self._draw(fit, file, fit.datasets[dataset][split], rows)
        self._kept = {}

    def _rows(self, ids: np.ndarray, said: np.ndarray, true: np.ndarray) -> list[dict[str, Any]]:
        wrong = said != true
        pairs, place, counts = np.unique(
            np.stack([true[wrong], said[wrong]]), axis=1, return_inverse=True, return_counts=True
        )
        place = place.ravel()
        members = ids[wrong]
        rows = []
        for number in np.argsort(-counts, kind="stable")[: self.count]:
            target, prediction = pairs[:, number].tolist()
            rows.append(
                {
                    "target": self._name(target),
                    "prediction": self._name(prediction),
                    "count": int(counts[number]),
                    "share_of_target": float(counts[number] / (true == target).sum()),
                    "sample_ids": np.sort(members[place == number])[: self.samples].tolist(),
                }
            )
        return rows

    def _name(self, number: int) -> str:
        return self.classes[number] if number < len(self.classes) else str(number)

    def _draw(self, fit: Fit, file: str, sequence: Any, rows: list[dict[str, Any]]) -> None:
        chosen = [(row, row["sample_ids"][0]) for row in rows]
        found = samples_of(sequence, 0, {own for _, own in chosen})
        images, titles = [], []
        for row, own in chosen:
            image = image_of(found[own]) if own in found else None
            if image is not None:
                images.append(image)
                titles.append(f"{row['target']} taken for {row['prediction']}\n{row['count']} times, as {own}")
        if images:
            columns = min(5, len(images))
            picture = new_figure(1.8 * columns, 2.0 * -(-len(images) // columns))
            show_images(picture, images, titles, columns)
            save_figure(fit, file, picture)
