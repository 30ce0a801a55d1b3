"""Pictures of samples as the model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._arrays import array_of
from nnpipe.training.callbacks._sample_access import called, image_of, show_images
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class RandomSamples(WritingCallback):
    """Draw samples of the first training batch of each data set, and of the first batch of each other split.

    If the batch holds pictures, it writes ``pictures/samples-DATASET-SPLIT.png`` with
    their labels and, after an evaluation, the model's predictions.

    Parameters
    ----------
    count
        Number of samples to draw.
    classes
        Names of the classes; by default captions have their numbers.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingExportSamples",)

    def __init__(self, count: int = 20, classes: Sequence[str] = ()) -> None:
        check_call(RandomSamples, locals())
        self.count = count
        self.classes = tuple(classes)
        # Kept in checkpoints, so that a resumed run does not draw its own first batch.
        self.state = State(drawn=[])
        self._seen: set[tuple[int, str]] = set()

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Draw the run's first training batch of a data set."""
        split = f"{fit.dataset}/{'+'.join(fit.options.train_splits)}"
        if split not in self.state.drawn:
            self.state.drawn = [*self.state.drawn, split]
            self._draw(fit, fit.epoch, split, batch, outputs)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Draw the first batch of a split."""
        self._draw(fit, fit.epoch, f"{dataset}/{split}", batch, outputs)

    def _draw(self, fit: Fit, epoch: int, split: str, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        if (epoch, split) in self._seen:
            return
        self._seen = {seen for seen in self._seen if seen[0] == epoch} | {(epoch, split)}
        size = len(batch["sample_id"])
        if not size:
            return
        chosen = np.sort(fit.generator("random samples").permutation(size)[: self.count]).tolist()
        arrays = {
            name: array_of(value[chosen])
            for name, value in batch.items()
            if isinstance(value, np.ndarray) or hasattr(value, "detach")
        }
        said = {}
        for name, output in outputs.items():
            predictions = output.predictions()
            if getattr(predictions, "ndim", 0) == 1 and len(predictions) == size:
                said[name] = array_of(predictions[chosen])
        whole = {n: v for n, v in arrays.items() if v.ndim == 1 and v.dtype.kind in "iu" and n != "sample_id"}
        images, titles = [], []
        for place in range(len(chosen)):
            image = image_of({name: value[place] for name, value in arrays.items()})
            if image is None:
                return
            labels = [called(n, v[place], self.classes) for n, v in whole.items()]
            said_here = [self._said(name, v[place]) for name, v in said.items()]
            images.append(image)
            titles.append("\n".join([f"id {arrays['sample_id'][place]}", ", ".join(labels + said_here)]))
        columns = min(5, len(images))
        picture = new_figure(1.7 * columns, 2.0 * -(-len(images) // columns))
        show_images(picture, images, titles, columns)
        save_figure(fit, file_name("samples", *split.split("/")), picture)

    def _said(self, name: str, value: Any) -> str:
        what = "predicted" if name == "output" else f"{name} predicted"
        return called(what, value, self.classes) if value.dtype.kind in "iu" else f"{what} {value:.4g}"
