"""Writing a run for TensorBoard."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.experiment.exports.event_files import EventFile
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._model_graph import graph_of
from nnpipe.training.callbacks._projector import tile_of, write_points
from nnpipe.training.callbacks._sample_access import each_sample, features_of, image_of
from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of, pictures_of

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_HISTOGRAMS = {"weight_histograms": "weights", "gradient_histograms": "gradients"}


class TensorBoard(WritingCallback):
    """Write the run for ``tensorboard --logdir``, into ``tensorboard`` of the run's folder.

    - *Scalars*: all figures of the history at each epoch, over the steps of the optimiser.
    - *Histograms*: of weights and gradients at each epoch, if ``WeightStatistics`` and ``GradientNorms`` are used.
    - *Images*: pictures of other callbacks that have changed, after epochs 1, 2, 4, 8, ... and at
      the end, so that they do not fill the disk in a long training.
    - *Graph*: the operations of a PyTorch model in its layers, as they run on an evaluated batch.
    - *Projector*: the features of ``Embeddings``, with ids, labels and, if samples are
      pictures, a small picture of each.

    Callbacks are called in the order in which they are named: name this one after
    those whose files it shows.  A resumed run continues the same file, shortened
    to the state at its checkpoint.

    Parameters
    ----------
    pictures
        Whether to add the pictures.
    graph
        Whether to add the graph; the model is run once more for it.
    """

    requires = ("tensorboardX",)
    install = "tensorboardX"
    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = (
        "CallbackTensorboardEmbedding",
        "CallbackTensorboardRecordHistory",
        "CallbackTensorboardRecordModel",
    )

    def __init__(self, pictures: bool = True, graph: bool = True) -> None:
        check_call(TensorBoard, locals())
        self.pictures = pictures
        self.graph = graph
        # The bytes of the file that belong to finished epochs, the step of the last one, the pictures in it, and
        # whether it has the graph.
        self.state = State(size=0, step=0, shown={}, drawn=False)
        self._file: EventFile | None = None

    def on_fit_begin(self, fit: Fit) -> None:
        """Open the file; if its content is lost, write the history again from the start."""
        super().on_fit_begin(fit)
        path, state = folder_of(fit).events, self.state
        if not path.exists() or path.stat().st_size < state.size:
            state.size, state.shown, state.drawn = 0, {}, False
        self._file = EventFile(path, state.size)
        if not state.size:
            for row in fit.history.rows():
                self._scalars(self._file, row)
        self._end(self._file)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Write the graph of the first batch that is evaluated."""
        if not self.graph or self.state.drawn or fit.framework != "torch":
            return
        assert self._file is not None
        self.state.drawn = True
        try:
            self._file.graph(graph_of(fit.model, batch, fit.device), time.time())
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            # A model may compute what cannot be recorded; its training goes on.
            fit.log.warning("TensorBoard: the model's graph cannot be recorded: %s", str(error).splitlines()[0])

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the epoch's figures, histograms and pictures."""
        file = self._file
        assert file is not None  # on_fit_begin has opened it
        self._scalars(file, fit.history.last)
        for name, tag in _HISTOGRAMS.items():
            path = folder_of(fit).table(name, ending="npz")
            if path.exists():
                self._histograms(file, path, tag, fit.step)
        self.state.step = fit.step
        if fit.epoch & (fit.epoch - 1) == 0:
            self._pictures(fit, file)
        self._end(file)

    def on_fit_end(self, fit: Fit) -> None:
        """Write pictures that other callbacks made at the end, and the projector's files."""
        file = self._file
        assert file is not None
        self._pictures(fit, file)
        file.flush()
        told = [self._project(fit, path) for path in folder_of(fit).arrays("embeddings")]
        if told:
            write_text(folder_of(fit).projector, "".join(told))

    def _end(self, file: EventFile) -> None:
        file.flush()
        self.state.size = file.size

    def _scalars(self, file: EventFile, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name not in ("epoch", "step"):
                file.scalar(name, float(value), int(row.get("step", row["epoch"])), time.time())

    def _histograms(self, file: EventFile, path: Path, tag: str, now: int) -> None:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        step = int(arrays["step"])
        if not self.state.step < step <= now:
            return  # the file is not of this epoch
        for name, edges, counts in zip(arrays["names"], arrays["edges"], arrays["counts"], strict=True):
            file.histogram(f"{tag}/{name}", edges.tolist(), counts.tolist(), step, time.time())

    def _pictures(self, fit: Fit, file: EventFile) -> None:
        if not self.pictures:
            return
        for path in pictures_of(fit):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if path.suffix == ".png" and self.state.shown.get(path.stem) != digest:
                self.state.shown[path.stem] = digest
                file.picture(path.stem, content, fit.step, time.time())

    def _project(self, fit: Fit, path: Path) -> str:
        """Write an embedding's files for the projector, and return its entry for the projector's configuration."""
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        name, ids = str(arrays["name"]), arrays["sample_id"].tolist()
        columns = {"sample_id": ids}
        if "labels" in arrays and arrays["labels"].ndim == 1:
            columns["label"] = arrays["labels"].tolist()
        tiles: dict[int, np.ndarray] = {}
        dataset, split, _ = name.split("/", 2)
        if find_spec("PIL") is not None and split in fit.datasets.get(dataset, {}):
            with closing(each_sample(fit.datasets[dataset][split], 0, ids)) as samples:
                for own, sample in samples:
                    image = image_of(features_of(sample))
                    if image is None:
                        break
                    tiles[own] = tile_of(image)
        own_tiles = [tiles[own] for own in ids] if len(tiles) == len(set(ids)) else None
        return write_points(folder_of(fit), name, arrays["features"], columns, own_tiles)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
