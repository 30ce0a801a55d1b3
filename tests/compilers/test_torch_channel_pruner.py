"""Thinner networks compute what the network would with the channels that went set to 0."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.compilers.torch_channel_pruner import TorchChannelPruner
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.model import random_batch
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import ModelCompilerContract, outputs_of
from nnpipe.testing.model_files import NETWORK_IO
from nnpipe.testing.session import assert_one_line
from nnpipe.testing.torch_networks import outputs_of_network, torch_network, write_torch_network

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

SAMPLES = [random_batch(NETWORK_IO, 1, seed) for seed in range(32)]


class Chain(nn.Module):
    """Everything that channels can go through, and layers that must keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish(),
            nn.Conv2d(8, 12, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 10, 3), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(40, 6), nn.Tanh(), nn.Dropout(), nn.Linear(6, 5))
        self.joined = nn.Linear(5 + 3, 1)

    def forward(self, given: Any) -> Any:
        scores = self.dense(self.features(given["image"]))
        return {"scores": scores, "total": self.joined(torch.cat([scores, given["extra"]], 1))}


def chain() -> Any:
    torch.manual_seed(0)
    network = Chain().eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_mean, -0.2, 0.2)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 2)
    return network


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_torch_network(tmp_path_factory.mktemp("source") / "network.pt2", chain())


def shapes(artifact: Artifact) -> dict[str, tuple[int, ...]]:
    state = torch.export.load(artifact.path).state_dict
    return {name.removeprefix("model."): tuple(tensor.shape) for name, tensor in state.items()}


class TestTorchChannelPruner(ModelCompilerContract):
    tolerance = 1.5
    agreement = 0.2  # a third of a small network is gone

    @pytest.fixture
    def compiler(self) -> TorchChannelPruner:
        return TorchChannelPruner(channel_sparsity=0.3, channel_multiple=2, fine_tuning_steps=3)

    @pytest.fixture
    def artifact(self, source: Artifact) -> Artifact:
        return source

    @pytest.fixture
    def runtime(self) -> PyTorchRuntime:
        return PyTorchRuntime()

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return SAMPLES

    @pytest.fixture
    def expected(self) -> Sequence[Batch]:
        network = chain()
        return [outputs_of_network(network, batch) for batch in SAMPLES]

    def test_the_number_of_samples_stays_free(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO


def test_nothing_taken_is_nothing_changed(source: Artifact, tmp_path: Path) -> None:
    made = TorchChannelPruner(channel_sparsity=0).compile(source, tmp_path / "made.pt2")
    network = chain()
    for found, batch in zip(outputs_of(PyTorchRuntime(), made, NETWORK_IO, SAMPLES), SAMPLES, strict=True):
        np.testing.assert_allclose(found["scores"], outputs_of_network(network, batch)["scores"], atol=1e-6)


def test_what_stays_computes_as_if_the_rest_were_zero(source: Artifact, tmp_path: Path) -> None:
    made = TorchChannelPruner(channel_sparsity=0.5).compile(source, tmp_path / "made.pt2")
    found = shapes(made)
    assert found["features.0.weight"] == (4, 1, 3, 3)
    assert found["features.1.running_var"] == (4,)
    assert found["features.3.weight"] == (4, 1, 3, 3)
    assert found["features.6.weight"] == (6, 4, 1, 1)
    assert found["features.9.weight"] == (5, 6, 3, 3)
    assert found["dense.1.weight"] == (3, 20)
    assert found["dense.4.weight"] == (5, 3)  # what it gives is an output
    # The same by hand: what a filter gives reaches no further when the weights that take it in are 0.
    network = chain()
    layers = [*network.features, *network.dense]
    gone = {}
    for place, taker in {0: 6, 6: 9, 9: 13, 13: 16}.items():
        weight = layers[place].weight.detach()
        least = weight.abs().flatten(1).sum(1).argsort()[: len(weight) // 2]
        repeats = layers[taker].weight.shape[1] // len(weight)
        gone[taker] = (least[:, None] * repeats + torch.arange(repeats)).flatten()
    with torch.no_grad():
        for taker, ways in gone.items():
            layers[taker].weight[:, ways] = 0
    for one, batch in zip(outputs_of(PyTorchRuntime(), made, NETWORK_IO, SAMPLES), SAMPLES, strict=True):
        np.testing.assert_allclose(one["scores"], outputs_of_network(network, batch)["scores"], atol=1e-5)


def test_channels_that_meet_others_stay(tmp_path: Path) -> None:
    source = write_torch_network(tmp_path / "network.pt2", torch_network(channels=8))
    with pytest.raises(CompileError, match="no layer whose channels can be taken away") as caught:
        TorchChannelPruner().compile(source, tmp_path / "made.pt2")
    assert_one_line(caught.value)


@pytest.mark.slow
def test_a_trained_residual_network_becomes_thinner_inside_its_blocks(tmp_path: Path, shared_data: Path) -> None:
    wrapper = PyTorchCIFARResNet()
    wrapper.load(shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th")
    source, io = wrapper.export(tmp_path / "resnet.pt2", "torch-export"), wrapper.io

    def images(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        records = np.frombuffer(gzip.decompress((shared_data / "cifar10" / name).read_bytes()), "uint8")
        labels, pixels = np.split(records.reshape(-1, 3073)[:count], [1], axis=1)
        planes = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return wrapper.preprocess({"image": planes})["image"], labels[:, 0]

    seen, _ = images("train_00000-03999.bin.gz", 1000)
    unseen, labels = images("test_000-499.bin.gz", 500)

    def accuracy(made: Artifact) -> float:
        (found,) = outputs_of(PyTorchRuntime(), made, io, [{"image": unseen}])
        return float(np.mean(found["scores"].argmax(1) == labels))

    pruner = TorchChannelPruner(channel_sparsity=0.25, fine_tuning_steps=150)
    tuned = pruner.compile(source, tmp_path / "tuned.pt2", lambda: [{"image": image[None]} for image in seen])
    assert tuned.size < 0.8 * source.size
    plain = TorchChannelPruner(channel_sparsity=0.25).compile(source, tmp_path / "plain.pt2")
    assert accuracy(tuned) > 0.8 > accuracy(plain)
