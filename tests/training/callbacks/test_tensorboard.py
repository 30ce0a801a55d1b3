"""What TensorBoard itself reads of a run."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import importlib.util
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
needs("sklearn")
needs("tensorboardX")
accumulators = ImportedWhenUsed("tensorboard.backend.event_processing.event_accumulator")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
import digit_toys as digits

from nnpipe.core.errors import MissingDependency, TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.embeddings import Embeddings
from nnpipe.training.callbacks.history import HistoryPlots
from nnpipe.training.callbacks.tensorboard import TensorBoard
from nnpipe.training.callbacks.weights import GradientNorms, Kernels, WeightStatistics
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("sketched")


class Embedding(digits.DigitNet):
    """Hands its features out, too."""

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        features = EmbeddingOutput(self.features(batch["image"]).flatten(1), batch["label"])
        return super().forward(batch) | {"features": features}


def model() -> Embedding:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return Embedding()


def looking_on() -> list[Callback]:
    return [
        WeightStatistics(),
        GradientNorms(),
        HistoryPlots(),
        Kernels(4),
        Embeddings(30),
        TensorBoard(),
    ]


def fit(folder: Path, *others: Callback, epochs: int = 3, trained: Any = None) -> Any:
    trainer = Trainer(
        TrainerOptions(num_epochs=epochs, checkpoint_every=2), [*looking_on(), *others]
    )
    return trainer.fit(trained or model(), digits.sequences(64, 40), folder=folder)


def read(folder: Path) -> Any:
    everything = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)
    found = accumulators.EventAccumulator(str(folder / "tensorboard"), everything)
    return found.Reload()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder, trained = tmp_path_factory.mktemp("run"), model()
    return folder, fit(folder, trained=trained), trained


def test_all_figures_of_the_history_are_there_over_the_steps(run: tuple[Path, Any, Any]) -> None:
    folder, history, _ = run
    found = read(folder)
    names = [name for name in history.names if name not in ("epoch", "step")]
    assert sorted(found.Tags()["scalars"]) == sorted(names)
    for name in names:
        events = found.Scalars(name)
        assert [event.step for event in events] == [2, 4, 6]
        assert [event.value for event in events] == pytest.approx(history[name].tolist(), rel=1e-6)


def test_the_graph_has_the_operations_of_each_layer_in_their_order(
    run: tuple[Path, Any, Any],
) -> None:
    graph = read(run[0]).Graph()
    nodes = {node.name: node for node in graph.node}
    assert nodes["features/0/convolution"].input[:2] == ["batch/image", "features/0/weight"]
    assert nodes["features/1/relu"].input[0] == "features/0/convolution"
    assert nodes["outputs/digit"].input == ["head/addmm"]
    shape = nodes["features/2/convolution"].attr["_output_shapes"].list.shape[0]
    assert [part.size for part in shape.dim] == [40, 16, 4, 4]
    assert all(source in nodes for node in graph.node for source in node.input)


def test_histograms_are_those_of_the_weights_and_gradients(run: tuple[Path, Any, Any]) -> None:
    folder, _, trained = run
    found = read(folder)
    parameters = dict(trained.named_parameters())
    expected = [f"{kind}/{name}" for kind in ("gradients", "weights") for name in parameters]
    assert sorted(found.Tags()["histograms"]) == sorted(expected)
    for name, parameter in parameters.items():
        events = found.Histograms(f"weights/{name}")
        assert [event.step for event in events] == [2, 4, 6]
        last, values = events[-1].histogram_value, parameter.detach().numpy().ravel()
        counts, edges = np.histogram(values, 40)
        assert last.num == values.size
        np.testing.assert_allclose(last.bucket_limit, edges, rtol=1e-6, atol=1e-9)
        assert [int(count) for count in last.bucket] == [0, *counts]
        assert [event.step for event in found.Histograms(f"gradients/{name}")] == [1, 3, 5]


def test_pictures_of_others_are_there_as_they_were_at_epochs_1_and_2_and_at_the_end(
    run: tuple[Path, Any, Any],
) -> None:
    folder, _, _ = run
    found = read(folder)
    names = sorted(path.stem for path in (folder / "pictures").iterdir())
    assert sorted(found.Tags()["images"]) == names
    for name in names:
        events = found.Images(name)
        assert [event.step for event in events] == [2, 4, 6]
        assert events[-1].encoded_image_string == (folder / "pictures" / f"{name}.png").read_bytes()
        assert (events[-1].width, events[-1].height) == pillow.open(
            io.BytesIO(events[-1].encoded_image_string)
        ).size


def test_the_projector_of_tensorboard_shows_the_features(run: tuple[Path, Any, Any]) -> None:
    plugins = pytest.importorskip(
        "tensorboard.plugins.projector.projector_plugin", reason="TensorBoard is not installed"
    )
    base = pytest.importorskip(
        "tensorboard.plugins.base_plugin", reason="TensorBoard is not installed"
    )
    werkzeug = pytest.importorskip("werkzeug.test", reason="Werkzeug is not installed")
    wrappers = pytest.importorskip("werkzeug.wrappers", reason="Werkzeug is not installed")
    folder, _, _ = run
    plugin = plugins.ProjectorPlugin(
        base.TBContext(logdir=str(folder / "tensorboard"), data_provider=None)
    )
    routes = plugin.get_plugin_apps()

    def ask(route: str) -> Any:
        client = werkzeug.Client(routes[route], wrappers.Response)
        answer = client.get(f"{route}?run=.&name=digits/test/features&num_rows=1000")
        assert answer.status_code == 200, answer.data
        return answer.data

    (told,) = json.loads(ask("/info"))["embeddings"]
    assert (told["tensorName"], told["tensorShape"]) == ("digits/test/features", [30, 256])
    assert told["sprite"]["singleImageDim"] == [32, 32]
    with np.load(
        folder / "tables" / "embeddings-digits-test-features.npz", allow_pickle=False
    ) as arrays:
        points = np.frombuffer(ask("/tensor"), np.float32).reshape(30, 256)
        np.testing.assert_allclose(points, arrays["features"], rtol=1e-5, atol=1e-7)
        rows = [line.split("\t") for line in ask("/metadata").decode().splitlines()]
        assert rows[0] == ["sample_id", "label"]
        assert rows[1:] == [
            [str(n), str(label)] for n, label in enumerate(arrays["labels"].tolist())
        ]
    sprite = np.asarray(pillow.open(io.BytesIO(ask("/sprite_image"))))
    # 30 pictures need six in a row, and the sprite is square
    assert sprite.shape == (6 * 32, 6 * 32, 3)
    image = digits.arrays(1207, 1208)["image"][0, 0]
    tile = sprite[32:64, 32:64, 0]  # the eighth, of id 7, in the second row
    np.testing.assert_array_equal(
        tile, np.kron(np.rint(image / image.max() * 255), np.ones((4, 4)))
    )


class Kill(Callback):
    """Stops a training as a kill would."""

    def __init__(self, step: int, at_the_end: bool = False) -> None:
        self._step, self._at_the_end = step, at_the_end

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        if fit.step == self._step:
            raise RuntimeError("killed")

    def on_fit_end(self, fit: Any) -> None:
        if self._at_the_end:
            raise RuntimeError("killed")


def events(folder: Path) -> list[tuple[Any, ...]]:
    """All that the file holds but the times, in order."""
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="TensorBoard is not installed",
    )
    (path,) = (folder / "tensorboard").glob("events.*")
    return [
        (event.step, value.tag, value.SerializeToString())
        for event in loader.RawEventFileLoader(str(path)).Load()
        for event in [_parsed(event)]
        for value in event.summary.value
    ]


def _parsed(data: bytes) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event.FromString(data)


@pytest.mark.parametrize(
    ("step", "at_the_end"), [pytest.param(1, False, marks=pytest.mark.slow), (3, False), (99, True)]
)
def test_a_resumed_run_goes_on_with_its_file(
    run: tuple[Path, Any, Any], tmp_path: Path, step: int, at_the_end: bool
) -> None:
    with pytest.raises(TrainingError, match="killed"):
        fit(tmp_path, Kill(step, at_the_end))
    fit(tmp_path)
    assert events(tmp_path) == events(run[0])
    fit(tmp_path)  # a run that is through
    assert events(tmp_path) == events(run[0])


@pytest.mark.slow
def test_where_the_file_is_lost_the_history_is_written_anew(tmp_path: Path) -> None:
    fit(tmp_path, epochs=2)
    shutil.rmtree(tmp_path / "tensorboard")
    history = fit(tmp_path, epochs=3)
    found = read(tmp_path).Scalars("digits/test/loss")
    assert [event.value for event in found] == pytest.approx(
        history["digits/test/loss"].tolist(), rel=1e-6
    )


def test_without_tensorboardx_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else find(name)
    )
    with pytest.raises(
        TrainingError, match=r"TensorBoard needs tensorboardX.*pip install 'tensorboardX'"
    ) as caught:
        Trainer(TrainerOptions(num_epochs=1), [TensorBoard()]).fit(
            model(), digits.sequences(32, 20), folder=tmp_path
        )
    assert isinstance(caught.value.__cause__, MissingDependency)
