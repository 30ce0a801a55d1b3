"""Pictures of samples as the model sees them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._arrays import to_array
from nnpipe.training.callbacks.callback import WritingCallback, create_figure, save_figure
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


def iter_samples(
    sequence: Any, epoch: int, ids: Collection[int] | None = None
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """Yield the samples of a sequence, or those of some ids, in its order, as batches of one.

    They are as the model sees them in an epoch.  Call this between epochs only,
    and close the iterator: it reads the sequence until all ids are found.
    An id that does not occur is left out.
    """
    wanted = None if ids is None else set(ids)
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    try:
        while wanted is None or wanted:
            batch = next(batches, None)
            if batch is None:
                break
            for place, own in enumerate(np.asarray(batch["sample_id"]).tolist()):
                if wanted is None or own in wanted:
                    if wanted is not None:
                        wanted.discard(own)
                    yield own, {name: _slice_sample(value, place) for name, value in batch.items()}
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def get_samples(sequence: Any, epoch: int, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return some samples by id, each feature as an array without the first axis; see
    :func:`iter_samples`.
    """
    with closing(iter_samples(sequence, epoch, ids)) as found:
        return {own: get_sample_features(sample) for own, sample in found}


def select_batches(
    sequence: Any, epoch: int, wanted: int | Collection[int]
) -> list[dict[str, Any]]:
    """Return samples as batches of one: the first so many, or those of some ids, in that order."""
    if isinstance(wanted, int):
        with closing(iter_samples(sequence, epoch)) as every:
            return [sample for _, sample in islice(every, wanted)]
    with closing(iter_samples(sequence, epoch, wanted)) as some:
        found = dict(some)
    return [found[own] for own in dict.fromkeys(wanted) if own in found]


def read_first_batch(sequence: Any, epoch: int) -> dict[str, Any] | None:
    """Return the first batch of an epoch, if there is one; call this between epochs only."""
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    found = next(batches, None)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    return None if found is None else dict(found)


def get_sample_features(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the features of a batch of one sample without the first axis."""
    found = {}
    for name, value in sample.items():
        if (
            name != "sample_id"
            and hasattr(value, "__getitem__")
            and not isinstance(value, (str, dict))
        ):
            found[name] = value[0] if isinstance(value[0], str) else np.array(value[0])
    return found


def _slice_sample(value: Any, place: int) -> Any:
    """Return a sample's part of a feature, with a first axis of length 1."""
    if not hasattr(value, "__getitem__") or isinstance(value, (str, dict)):
        return value
    part = value[place : place + 1]
    return part.copy() if isinstance(part, np.ndarray) else part


def find_image(sample: dict[str, Any]) -> np.ndarray | None:
    """Return the first feature that looks like a picture: ``(rows, columns)`` or ``(rows, columns,
    3)`` from 0 to 1.

    A picture has at least 4 rows and columns, and 1 or 3 channels, first or
    last.  Its least value becomes black and its greatest white.
    """
    for value in sample.values():
        if isinstance(value, np.ndarray) and value.dtype.kind in "uif":
            image = as_image(value)
            if image is not None:
                return image
    return None


def as_image(value: np.ndarray) -> np.ndarray | None:
    """Return an array as a picture if it looks like one; see :func:`find_image`."""
    if value.ndim == 3 and value.shape[0] in (1, 3) and min(value.shape[1:]) >= 4:
        value = np.moveaxis(value, 0, -1)
    if value.ndim == 3 and value.shape[-1] == 1:
        value = value[..., 0]
    if (
        not (value.ndim == 2 or (value.ndim == 3 and value.shape[-1] == 3))
        or min(value.shape[:2]) < 4
    ):
        return None
    values = np.nan_to_num(value.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low if high > low else 1.0)


def format_label(name: str, value: Any, classes: Sequence[str] = ()) -> str:
    """Return the text of a sample's label for its picture, with the class's name if it is known.

    Features under ``input`` are inputs of the model, not labels.
    """
    number = int(value)
    if not name.startswith("input/") and 0 <= number < len(classes):
        return f"{name.removeprefix('truth/')} {classes[number]}"
    return f"{name} {number}"


def show_images(figure: Any, images: list[np.ndarray], titles: list[str], columns: int) -> None:
    """Draw pictures with their titles into a figure."""
    rows = -(-len(images) // columns)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, image, title in zip(grid, images, titles, strict=False):
        axes.imshow(
            image, cmap="gray" if image.ndim == 2 else None, vmin=0, vmax=1, interpolation="nearest"
        )
        axes.set_title(title, fontsize=8)


class RandomSamples(WritingCallback):
    """Draw samples of the first training batch of each data set, and of the first batch of each
    other split.

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

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Draw the run's first training batch of a data set."""
        split = f"{fit.dataset}/{'+'.join(fit.options.train_splits)}"
        if split not in self.state.drawn:
            self.state.drawn = [*self.state.drawn, split]
            self._draw(fit, fit.epoch, split, batch, outputs)

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Draw the first batch of a split."""
        self._draw(fit, fit.epoch, f"{dataset}/{split}", batch, outputs)

    def _draw(
        self,
        fit: TrainingRun,
        epoch: int,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        if (epoch, split) in self._seen:
            return
        self._seen = {seen for seen in self._seen if seen[0] == epoch} | {(epoch, split)}
        size = len(batch["sample_id"])
        if not size:
            return
        chosen = np.sort(fit.generator("random samples").permutation(size)[: self.count]).tolist()
        arrays = {
            name: to_array(value[chosen])
            for name, value in batch.items()
            if isinstance(value, np.ndarray) or hasattr(value, "detach")
        }
        said = {}
        for name, output in outputs.items():
            predictions = output.predictions()
            if getattr(predictions, "ndim", 0) == 1 and len(predictions) == size:
                said[name] = to_array(predictions[chosen])
        whole = {
            n: v
            for n, v in arrays.items()
            if v.ndim == 1 and v.dtype.kind in "iu" and n != "sample_id"
        }
        images, titles = [], []
        for place in range(len(chosen)):
            image = find_image({name: value[place] for name, value in arrays.items()})
            if image is None:
                return
            labels = [format_label(n, v[place], self.classes) for n, v in whole.items()]
            said_here = [self._format_prediction(name, v[place]) for name, v in said.items()]
            images.append(image)
            titles.append(
                "\n".join([f"id {arrays['sample_id'][place]}", ", ".join(labels + said_here)])
            )
        columns = min(5, len(images))
        picture = create_figure(1.7 * columns, 2.0 * -(-len(images) // columns))
        show_images(picture, images, titles, columns)
        save_figure(fit, make_file_name("samples", *split.split("/")), picture)

    def _format_prediction(self, name: str, value: Any) -> str:
        what = "predicted" if name == "output" else f"{name} predicted"
        return (
            format_label(what, value, self.classes)
            if value.dtype.kind in "iu"
            else f"{what} {value:.4g}"
        )


class Augmentations(WritingCallback):
    """Draw training samples as they were in several epochs: a row for each sample, a column for
    each epoch.

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

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Collect and draw the samples."""
        for dataset, parts in fit.datasets.items():
            for split in fit.options.train_splits:
                if split in parts:
                    self._draw(fit, dataset, split, parts[split])

    def _draw(self, fit: TrainingRun, dataset: str, split: str, sequence: Any) -> None:
        epochs = range(1, self.epochs + 1)
        found = [get_samples(sequence, epoch, self.ids) for epoch in epochs]
        images, titles = [], []
        for own in self.ids:
            for epoch, samples in zip(epochs, found, strict=True):
                image = find_image(samples[own]) if own in samples else None
                images.append(np.full((4, 4), 0.5) if image is None else image)
                titles.append(
                    f"id {own}, epoch {epoch}" + ("" if own in samples else ": not in it")
                )
        if any(find_image(sample) is not None for samples in found for sample in samples.values()):
            picture = create_figure(1.6 * self.epochs, 1.8 * len(self.ids))
            show_images(picture, images, titles, self.epochs)
            save_figure(fit, make_file_name("augmentations", dataset, split), picture)
