"""What a trainer is handed is taken where it can be, and refused in one line where it cannot be."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys
from torch.utils.data import DataLoader, TensorDataset

from nnpipe.core.errors import ConfigError
from nnpipe.training._optimisers import check_device
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.optimization import SGD, AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.trainer import Trainer


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, batch: dict[str, Any]) -> Any:
        return ClassificationOutput(self.layer(batch["input"]), batch["target"])


def loader(count: int = 40, size: int = 8, shuffle: bool = True) -> Any:
    data = toys.blobs(count)
    pairs = TensorDataset(torch.from_numpy(data["x"]), torch.from_numpy(data["label"]))
    return DataLoader(pairs, size, shuffle=shuffle)


def fit(model: Any = None, data: Any = None, **given: Any) -> Any:
    options = {name: given.pop(name) for name in list(given) if name in TrainerOptions().to_json()}
    asked = TrainerOptions.from_json({"num_epochs": 1, **options})
    return Trainer(asked, ()).fit(
        model or toys.fresh(), toys.sequences() if data is None else data, **given
    )


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: loader(), "data/train"),
        (lambda: {"train": loader()}, "data/train"),
        (lambda: {"train": loader(), "test": loader(20, shuffle=False)}, "data/test"),
        (lambda: {"blobs": {"train": loader(), "test": loader(20)}}, "blobs/test"),
    ],
)
def test_loaders_are_data(make: Any, name: str, tmp_path: Path) -> None:
    one, other = Plain(), Plain()
    other.load_state_dict(one.state_dict())
    history = fit(one, make(), num_epochs=2)
    assert f"{name}/output/accuracy" in history.last
    # whatever has been drawn before
    assert list(fit(other, make(), num_epochs=2).rows()) == list(history.rows())
    assert toys.equal(toys.weights(one), toys.weights(other))
    fit(Plain(), loader(40, 8), folder=tmp_path)
    with pytest.raises(ConfigError, match="batch was 8 and is 10"):
        fit(Plain(), loader(40, 10), folder=tmp_path)
    assert name in " ".join(Trainer().evaluate(one, make()))


def test_an_optimiser_that_is_there_is_used() -> None:
    model, expected = toys.fresh(), toys.fresh()
    history = fit(model, optimiser=torch.optim.SGD(model.parameters(), lr=0.05), schedule=Cosine())
    assert list(
        fit(expected, optimiser=SGD(rate=0.05, momentum=0), schedule=Cosine()).rows()
    ) == list(history.rows())
    assert toys.equal(toys.weights(model), toys.weights(expected))


def scheduler() -> Any:
    return torch.optim.lr_scheduler.StepLR(torch.optim.SGD(toys.fresh().parameters(), 0.1), 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schedule": 3}, r"schedule is a int; give one of .*Cosine\(\)"),
        ({"schedule": "cosine"}, "schedule is a str"),
        ({"schedule": Cosine}, r"schedule is the class Cosine; give an instance"),
        ({"schedule": scheduler}, r"schedule is a function; give TorchSchedule\(make="),
        ({"schedule": "made"}, r"schedule is a StepLR; give TorchSchedule\(make="),
        ({"optimiser": AdamW}, r"optimiser is the class AdamW; give an instance: AdamW\(\)"),
        ({"optimiser": "adam"}, r"optimiser is a str; give a torch\.optim\.Optimizer"),
        ({"optimiser": 0.1}, "optimiser is a float"),
        ({"optimiser": lambda parameters: 3}, "optimiser gave a int"),
        ({"optimiser": "other"}, "optimiser: none of its parameters is the model's"),
        ({"optimiser": "own", "parameters": []}, "parameters: the optimiser has its own already"),
        ({"parameters": []}, "has no weights to train"),
        ({"model": toys.Net}, r"model is the class Net; give an instance: trainer\.build\(Net\)"),
        ({"model": 3}, "model is a int"),
        ({"data": 3}, r"datasets is a int; give sequences by data set and split"),
        ({"data": {"train": [1, 2]}}, r"datasets\['train'\] is a list"),
        (
            {"data": {"d": {"train": {"x": 1}}}},
            r"datasets\['d'\]\['train'\] is a dict, no sequence of batches",
        ),
        ({"data": TensorDataset(torch.zeros(3))}, r"make a torch\.utils\.data\.DataLoader of it"),
        ({"data": {1: {"train": 2}}}, "the name of a data set or split is a text"),
        (
            {"monitor": "blobs/tset/loss"},
            r"no figure 'blobs/tset/loss' to monitor.*did you mean blobs/test/loss",
        ),
        (
            {"monitor": "blobs/test/label/acuracy"},
            r"to monitor; there are .*did you mean blobs/test/label/accuracy",
        ),
        ({"folder": 3}, r"folder is a int"),
        ({"resume": "no"}, r"resume is a str"),
        ({"identity": 3}, r"identity is a int"),
        ({"progress": 3}, r"progress is a int"),
    ],
)
def test_what_cannot_be_taken_is_refused_before_anything_is_done(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = toys.fresh()
    if given.get("schedule") == "made":
        given = {"schedule": scheduler()}
    if given.get("optimiser") in ("other", "own"):
        own = model if given["optimiser"] == "own" else toys.fresh()
        given = {**given, "optimiser": torch.optim.SGD(own.parameters(), lr=0.1)}

    class Learning(toys.Net):
        def train(self, mode: bool = True) -> Any:
            assert not mode, "an epoch has begun"
            return super().train(mode)

    model.__class__ = Learning
    with pytest.raises(ConfigError, match=message) as caught:
        fit(given.pop("model", model), **{"folder": tmp_path / "run", **given})
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_at_once() -> None:
    for call in (
        fit,
        lambda **options: Trainer(TrainerOptions(**options)).evaluate(
            toys.fresh(), toys.sequences()
        ),
    ):
        with pytest.raises(
            ConfigError, match=r"device: PyTorch finds no usable NVIDIA GPU.*; use 'cpu'"
        ):
            call(device="cuda")
        with pytest.raises(
            ConfigError, match=r"device: PyTorch finds no usable NVIDIA GPU.*; use 'cpu'"
        ):
            call(device="cuda:1")
    if not torch.backends.mps.is_available():
        with pytest.raises(
            ConfigError, match="device: PyTorch finds no GPU of Apple here; use 'cpu'"
        ):
            call(device="mps")
    with pytest.raises(
        ConfigError, match="device is 'gpu'; give cpu, cuda, a certain GPU such as cuda:1, or mps"
    ):
        call(device="gpu")


def test_a_gpu_of_a_number_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda:1")
    with pytest.raises(
        ConfigError, match=r"there is no cuda:2; PyTorch finds 2 NVIDIA GPU\(s\), from cuda:0 on"
    ):
        check_device("cuda:2")


def test_initial_weights_follow_the_seed_and_nothing_else_notices() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (
        toys.weights(Trainer(TrainerOptions(seed=seed)).build(toys.Net)) for seed in (1, 1, 2)
    )
    assert toys.equal(one, same)
    assert not toys.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_with_a_folder_the_callbacks_of_the_command_look_on_unless_there_are_to_be_none(
    tmp_path: Path,
) -> None:
    data = toys.sequences()
    Trainer(TrainerOptions(num_epochs=1)).fit(toys.fresh(), data, folder=tmp_path / "all")
    Trainer(TrainerOptions(num_epochs=1), ()).fit(toys.fresh(), data, folder=tmp_path / "none")
    assert (tmp_path / "all" / "index.html").exists()
    assert (tmp_path / "all" / "tables" / "epochs.txt").exists()
    assert not (tmp_path / "none" / "index.html").exists()


class Idle(torch.nn.Module):
    """Has a head whose output has no loss, and one that is not used at all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body, self.kind, self.side, self.unused = (
            torch.nn.Linear(8, 8 if n == 0 else 3) for n in range(4)
        )

    def forward(self, batch: dict[str, Any]) -> Any:
        body = self.body(batch["x"]).tanh()
        return {
            "kind": ClassificationOutput(self.kind(body), batch["label"]),
            "side": EmbeddingOutput(self.side(body)),
        }


class Seeing(Callback):
    def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
        self.names = list(outputs)


def test_a_seen_batch_has_all_outputs() -> None:
    seeing = Seeing()
    Trainer(TrainerOptions(num_epochs=1), [seeing]).fit(Idle(), toys.sequences())
    assert seeing.names == ["kind", "side"]


def test_a_fingerprint_of_a_loader_is_that_of_its_data() -> None:
    from nnpipe.training.sequences.torch_loader import TorchSequence

    def fingerprint(change: float = 0.0) -> Any:
        images = np.ones((10, 4), np.float32) + change
        pairs = TensorDataset(torch.from_numpy(images), torch.zeros(10))
        return TorchSequence(DataLoader(pairs, 2), seed=1).fingerprint()

    assert fingerprint() == fingerprint() != fingerprint(1.0)
