"""Thinner networks compute what the network would with the channels that went set to 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import TorchNetworkContract, trained_resnet

from nnpipe.compilers.torch_pruner import TorchChannelPruner
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import generate_random_batch
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import (
    NETWORK_IO,
    create_torch_network,
    run_network,
    write_torch_network,
)
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

SAMPLES = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(32)]


class Chain(nn.Module):
    """Everything that channels can go through, and layers that must keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 12, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 10, 3),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.dense = nn.Sequential(
            nn.Flatten(), nn.Linear(40, 6), nn.Tanh(), nn.Dropout(), nn.Linear(6, 5)
        )
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


class TestTorchChannelPruner(TorchNetworkContract):
    tolerance = 1.5
    samples = SAMPLES
    network = staticmethod(chain)
    agreement = 0.2  # a third of a small network is gone

    @pytest.fixture
    def compiler(self) -> TorchChannelPruner:
        return TorchChannelPruner(channel_sparsity=0.3, channel_multiple=2, fine_tuning_steps=3)

    def test_the_number_of_samples_stays_free(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO


def test_nothing_taken_is_nothing_changed(source: Artifact, tmp_path: Path) -> None:
    made = TorchChannelPruner(channel_sparsity=0).compile(source, tmp_path / "made.pt2")
    network = chain()
    for found, batch in zip(
        run_compiled(PyTorchRuntime(), made, NETWORK_IO, SAMPLES), SAMPLES, strict=True
    ):
        np.testing.assert_allclose(
            found["scores"], run_network(network, batch)["scores"], atol=1e-6
        )


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
    # The same by hand: what a filter gives reaches no further when the weights that take it in are
    # 0.
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
    for one, batch in zip(
        run_compiled(PyTorchRuntime(), made, NETWORK_IO, SAMPLES), SAMPLES, strict=True
    ):
        np.testing.assert_allclose(one["scores"], run_network(network, batch)["scores"], atol=1e-5)


def test_channels_that_meet_others_stay(tmp_path: Path) -> None:
    source = write_torch_network(tmp_path / "network.pt2", create_torch_network(channels=8))
    with pytest.raises(CompileError, match="no layer whose channels can be taken away") as caught:
        TorchChannelPruner().compile(source, tmp_path / "made.pt2")
    assert_one_line(caught.value)


@pytest.mark.slow
def test_a_trained_residual_network_becomes_thinner_inside_its_blocks(
    tmp_path: Path, shared_data: Path
) -> None:
    source, seen, accuracy = trained_resnet(tmp_path, shared_data)
    pruner = TorchChannelPruner(channel_sparsity=0.25, fine_tuning_steps=150)
    tuned = pruner.compile(source, tmp_path / "tuned.pt2", seen)
    assert tuned.size < 0.8 * source.size
    plain = TorchChannelPruner(channel_sparsity=0.25).compile(source, tmp_path / "plain.pt2")
    assert accuracy(tuned) > 0.8 > accuracy(plain)
