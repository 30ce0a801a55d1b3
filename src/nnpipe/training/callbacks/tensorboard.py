"""Writing a run for TensorBoard."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import replace_atomically, write_text
from nnpipe.experiment.exports.export import EventFile
from nnpipe.experiment.state import State
from nnpipe.training._random import preserve_rng_state
from nnpipe.training.callbacks.callback import WritingCallback, get_run_folder, render_pictures
from nnpipe.training.callbacks.samples import find_image, get_sample_features, iter_samples
from nnpipe.training.run_folder import RunFolder

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun

_MOST = 20_000
"""The greatest number of operations; later ones are left out."""

_HIDDEN = ("aten::detach", "aten::alias", "aten::lift_fresh")


def trace_graph(model: Any, batch: Mapping[str, Any], device: str) -> bytes:
    """Return the graph of a module that takes a batch, as a serialised ``GraphDef``.

    The model is run once, without gradients and without a trace in random states.  Each operation
    of PyTorch is a node, whose name begins with the layer that called it; features of the batch and
    parameters are nodes, too.

    Parameters
    ----------
    model
        The ``torch.nn.Module``.
    batch
        Tensors, and other values, by name.
    device
        The device of the model.
    """
    import torch
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef
    from torch.utils._python_dispatch import TorchDispatchMode

    nodes = _Nodes({id(value): name.replace(".", "/") for name, value in model.named_parameters()})
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            nodes.add(f"batch/{name}", "Placeholder", (), value)

    class Recording(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            found = function(*arguments, **(keywords or {}))
            name = function.name().partition(".")[0]
            if len(nodes.made) < _MOST and name not in _HIDDEN:
                given = [*_iter_tensors(arguments), *_iter_tensors(keywords or {})]
                nodes.add(
                    f"{nodes.scope}{name.partition('::')[2]}", name, given, *_iter_tensors(found)
                )
            elif name in _HIDDEN:
                nodes.rename(arguments[0], found)
            return found

    handles = []
    for path, layer in model.named_modules():
        if path:
            handles.append(layer.register_forward_pre_hook(nodes.enter(path)))
            handles.append(layer.register_forward_hook(nodes.leave, always_call=True))
    try:
        with preserve_rng_state(device), torch.no_grad(), Recording():
            found = model(dict(batch))
    finally:
        for handle in handles:
            handle.remove()
    for name, output in (found if isinstance(found, dict) else {"output": found}).items():
        nodes.add(
            f"outputs/{name}", "Output", list(_iter_tensors(getattr(output, "output", output)))
        )
    graph = GraphDef(node=nodes.made, versions=VersionDef(producer=22))
    return bytes(graph.SerializeToString())


class _Nodes:
    """The nodes so far, and which of them made a tensor."""

    def __init__(self, parameters: Mapping[int, str]) -> None:
        self.made: list[Any] = []
        self._parameters = parameters
        self._by_tensor: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no other tensor gets the id of one that is gone
        self._names: dict[str, int] = {}
        self._layers: list[str] = []

    @property
    def scope(self) -> str:
        """The beginning of the names of the present layer's operations."""
        return f"{self._layers[-1]}/" if self._layers else ""

    def enter(self, path: str) -> Any:
        """Return a hook for the beginning of a layer."""
        return lambda layer, given: self._layers.append(path.replace(".", "/"))

    def leave(self, layer: Any, given: Any, found: Any) -> None:
        """End the present layer."""
        self._layers.pop()

    def rename(self, tensor: Any, other: Any) -> None:
        """Let a node stand for another tensor, too."""
        if id(tensor) in self._by_tensor:
            self._by_tensor[id(other)] = self._by_tensor[id(tensor)]
            self._kept.append(other)

    def add(self, name: str, kind: str, given: Any, *found: Any) -> None:
        """Add a node that takes tensors and gives tensors."""
        from tensorboardX.proto.attr_value_pb2 import AttrValue
        from tensorboardX.proto.node_def_pb2 import NodeDef
        from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

        inputs = [source for tensor in given if (source := self._find_source(tensor)) is not None]
        number = self._names[name] = self._names.get(name, 0) + 1
        node = NodeDef(name=name if number == 1 else f"{name}_{number - 1}", op=kind, input=inputs)
        shapes = [
            TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in tensor.shape])
            for tensor in found
        ]
        node.attr["_output_shapes"].CopyFrom(AttrValue(list=AttrValue.ListValue(shape=shapes)))
        self.made.append(node)
        for tensor in found:
            self._by_tensor[id(tensor)] = node.name
            self._kept.append(tensor)

    def _find_source(self, tensor: Any) -> str | None:
        if id(tensor) not in self._by_tensor and id(tensor) in self._parameters:
            self.add(self._parameters[id(tensor)], "Parameter", (), tensor)
        return self._by_tensor.get(id(tensor))


def _iter_tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _iter_tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _iter_tensors(part)


_TILE = 32
_SIDE = 8192
"""The largest sprite that a browser shows."""


def make_tile(image: np.ndarray) -> np.ndarray:
    """Shrink or enlarge a picture ``(rows, columns)`` or ``(rows, columns, 3)`` from 0 to 1 to
    32 x 32 x 3 bytes.
    """
    from PIL import Image

    picture = Image.fromarray(np.uint8(np.rint(image * 255)))
    # Small pictures keep their pixels, large ones their brightness.
    way = Image.Resampling.BOX if max(image.shape[:2]) > _TILE else Image.Resampling.NEAREST
    return np.asarray(picture.resize((_TILE, _TILE), way).convert("RGB"))


def write_points(
    folder: RunFolder,
    name: str,
    points: np.ndarray,
    columns: Mapping[str, Sequence[Any]],
    tiles: Sequence[np.ndarray] | None,
) -> str:
    """Write an embedding, and return its entry for the projector's configuration.

    Parameters
    ----------
    folder
        The run's folder.
    name
        The name that the projector shows.
    points
        Features ``(n, features)``.
    columns
        The labels of each point, by title.
    tiles
        Pictures ``(32, 32, 3)`` of 8 bits, one a point; more than 65,536 are left out.
    """
    points = np.nan_to_num(points.reshape(len(points), -1).astype(np.float32))
    lines = ("\t".join(f"{value:.7g}" for value in row) for row in points.tolist())
    _write(folder.get_projector_path(name, "tensors.tsv"), lines)
    rows: list[str] = [
        "\t".join(_format_cell(value) for value in row)
        for row in zip(*columns.values(), strict=True)
    ]
    # A single column has no title: the projector would take it for a point.
    _write(
        folder.get_projector_path(name, "metadata.tsv"),
        ["\t".join(columns), *rows] if len(columns) > 1 else rows,
    )
    own = folder.get_projector_path(name, "").name
    told = [
        "embeddings {",
        f"  tensor_name: {_format_text(name)}",
        f"  tensor_path: {_format_text(f'{own}/tensors.tsv')}",
        f"  tensor_shape: {points.shape[0]}",
        f"  tensor_shape: {points.shape[1]}",
        f"  metadata_path: {_format_text(f'{own}/metadata.tsv')}",
    ]
    if tiles and math.ceil(math.sqrt(len(tiles))) * _TILE <= _SIDE:
        _write_sprite(folder.get_projector_path(name, "sprite.png"), tiles)
        told += [
            "  sprite {",
            f"    image_path: {_format_text(f'{own}/sprite.png')}",
            f"    single_image_dim: {_TILE}",
            f"    single_image_dim: {_TILE}",
            "  }",
        ]
    return "\n".join([*told, "}"]) + "\n"


def _write_sprite(path: Path, tiles: Sequence[np.ndarray]) -> None:
    """Write pictures side by side, row by row, into a square one."""
    from PIL import Image

    side = math.ceil(math.sqrt(len(tiles)))
    whole = np.zeros((side, _TILE, side, _TILE, 3), np.uint8)
    for number, tile in enumerate(tiles):
        whole[number // side, :, number % side] = tile
    with replace_atomically(path) as partial:
        Image.fromarray(whole.reshape(side * _TILE, side * _TILE, 3)).save(partial, format="png")


def _write(path: Path, lines: Any) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def _format_cell(value: Any) -> str:
    return " ".join(str(value).split())  # neither tabs nor new lines


def _format_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


_HISTOGRAMS = {"weight_histograms": "weights", "gradient_histograms": "gradients"}


class TensorBoard(WritingCallback):
    """Write the run for ``tensorboard --logdir``, into ``tensorboard`` of the run's folder.

    - *Scalars*: all figures of the history at each epoch, over the steps of the optimiser.
    - *Histograms*: of weights and gradients at each epoch, if ``WeightStatistics`` and
      ``GradientNorms`` are used.
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
        # The bytes of the file that belong to finished epochs, the step of the last one, the
        # pictures in it, and whether it has the graph.
        self.state = State(size=0, step=0, shown={}, drawn=False)
        self._file: EventFile | None = None

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Open the file; if its content is lost, write the history again from the start."""
        super().on_fit_begin(fit)
        path, state = get_run_folder(fit).events, self.state
        if not path.exists() or path.stat().st_size < state.size:
            state.size, state.shown, state.drawn = 0, {}, False
        self._file = EventFile(path, state.size)
        if not state.size:
            for row in fit.history.rows():
                self._write_scalars(self._file, row)
        self._end(self._file)

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Write the graph of the first batch that is evaluated."""
        if not self.graph or self.state.drawn or fit.framework != "torch":
            return
        assert self._file is not None
        self.state.drawn = True
        try:
            self._file.graph(trace_graph(fit.model, batch, fit.device), time.time())
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            # A model may compute what cannot be recorded; its training goes on.
            fit.log.warning(
                "TensorBoard: the model's graph cannot be recorded: %s", str(error).splitlines()[0]
            )

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the epoch's figures, histograms and pictures."""
        file = self._file
        assert file is not None  # on_fit_begin has opened it
        self._write_scalars(file, fit.history.last)
        for name, tag in _HISTOGRAMS.items():
            path = get_run_folder(fit).table(name, ending="npz")
            if path.exists():
                self._write_histograms(file, path, tag, fit.step)
        self.state.step = fit.step
        if fit.epoch & (fit.epoch - 1) == 0:
            self._write_pictures(fit, file)
        self._end(file)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write pictures that other callbacks made at the end, and the projector's files."""
        file = self._file
        assert file is not None
        self._write_pictures(fit, file)
        file.flush()
        told = [
            self._write_projection(fit, path) for path in get_run_folder(fit).arrays("embeddings")
        ]
        if told:
            write_text(get_run_folder(fit).projector, "".join(told))

    def _end(self, file: EventFile) -> None:
        file.flush()
        self.state.size = file.size

    def _write_scalars(self, file: EventFile, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name not in ("epoch", "step"):
                file.add_scalar(name, float(value), int(row.get("step", row["epoch"])), time.time())

    def _write_histograms(self, file: EventFile, path: Path, tag: str, now: int) -> None:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        step = int(arrays["step"])
        if not self.state.step < step <= now:
            return  # the file is not of this epoch
        for name, edges, counts in zip(
            arrays["names"], arrays["edges"], arrays["counts"], strict=True
        ):
            file.add_histogram(f"{tag}/{name}", edges.tolist(), counts.tolist(), step, time.time())

    def _write_pictures(self, fit: TrainingRun, file: EventFile) -> None:
        if not self.pictures:
            return
        for path in render_pictures(fit):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if path.suffix == ".png" and self.state.shown.get(path.stem) != digest:
                self.state.shown[path.stem] = digest
                file.picture(path.stem, content, fit.step, time.time())

    def _write_projection(self, fit: TrainingRun, path: Path) -> str:
        """Write an embedding's files for the projector, and return its entry for the projector's
        configuration.
        """
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        name, ids = str(arrays["name"]), arrays["sample_id"].tolist()
        columns = {"sample_id": ids}
        if "labels" in arrays and arrays["labels"].ndim == 1:
            columns["label"] = arrays["labels"].tolist()
        tiles: dict[int, np.ndarray] = {}
        dataset, split, _ = name.split("/", 2)
        if find_spec("PIL") is not None and split in fit.datasets.get(dataset, {}):
            with closing(iter_samples(fit.datasets[dataset][split], 0, ids)) as samples:
                for own, sample in samples:
                    image = find_image(get_sample_features(sample))
                    if image is None:
                        break
                    tiles[own] = make_tile(image)
        own_tiles = [tiles[own] for own in ids] if len(tiles) == len(set(ids)) else None
        return write_points(get_run_folder(fit), name, arrays["features"], columns, own_tiles)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
