"""Pruned programs have as many zeros as asked for, and distillation brings back what was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import TorchNetworkContract, trained_resnet

from nnpipe.compilers.torch_pruner import TorchPruner
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError
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

SAMPLES = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(64)]
MATRICES = ("first.0.weight", "depthwise.0.weight", "pointwise.0.weight", "dense.weight")


def weights_of(artifact: Artifact) -> dict[str, np.ndarray]:
    state = torch.export.load(artifact.path).state_dict
    return {name: tensor.detach().numpy() for name, tensor in state.items()}


def error(made: Artifact, network: Any) -> float:
    found = run_compiled(PyTorchRuntime(), made, NETWORK_IO, SAMPLES)
    wanted = [run_network(network, batch) for batch in SAMPLES]
    return float(
        np.mean([(f["scores"] - w["scores"]) ** 2 for f, w in zip(found, wanted, strict=True)])
    )


class TestTorchPruner(TorchNetworkContract):
    tolerance = 8.0  # nearly half of the weights are gone
    samples = SAMPLES
    agreement = 0.3

    @pytest.fixture
    def compiler(self) -> TorchPruner:
        return TorchPruner(
            sparsity=0.4,
            scope="global",
            fine_tuning_steps=5,
            fine_tuning_rate=0.001,
            fine_tuning_batch=16,
            fine_tuning_seed=3,
        )


@pytest.mark.slow
def test_nothing_pruned_is_nothing_changed(source: Artifact, tmp_path: Path) -> None:
    made = TorchPruner(sparsity=0).compile(source, tmp_path / "made.pt2")
    for name, array in weights_of(source).items():
        np.testing.assert_array_equal(weights_of(made)[name], array, err_msg=name)


def test_each_layer_loses_its_part_and_the_rest_stays(source: Artifact, tmp_path: Path) -> None:
    made = TorchPruner(sparsity=0.75).compile(source, tmp_path / "made.pt2")
    before, after = weights_of(source), weights_of(made)
    for name, array in before.items():
        if name not in MATRICES:
            np.testing.assert_array_equal(after[name], array)
            continue
        gone = after[name] == 0
        assert gone.sum() == int(0.75 * array.size), name
        np.testing.assert_array_equal(after[name][~gone], array[~gone])
        assert np.abs(array[gone]).max() <= np.abs(array[~gone]).min()


def test_all_layers_together_lose_the_part(source: Artifact, tmp_path: Path) -> None:
    made = weights_of(
        TorchPruner(sparsity=0.75, scope="global").compile(source, tmp_path / "made.pt2")
    )
    zeros = {name: np.sum(made[name] == 0) for name in MATRICES}
    total = sum(made[name].size for name in MATRICES)
    assert sum(zeros.values()) == int(0.75 * total)
    assert any(zeros[name] != int(0.75 * made[name].size) for name in MATRICES)


@pytest.mark.slow
def test_fine_tuning_brings_back_most_and_keeps_the_zeros(source: Artifact, tmp_path: Path) -> None:
    pruner = TorchPruner(sparsity=0.5, fine_tuning_steps=200, fine_tuning_rate=0.01)
    tuned = pruner.compile(source, tmp_path / "tuned.pt2", lambda: SAMPLES)
    plain = TorchPruner(sparsity=0.5).compile(source, tmp_path / "plain.pt2")
    network = create_torch_network()
    assert error(tuned, network) < 0.6 * error(plain, network)
    before, after = weights_of(plain), weights_of(tuned)
    for name in MATRICES:
        np.testing.assert_array_equal(after[name] == 0, before[name] == 0)


class Probabilities(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = create_torch_network()

    def forward(self, given: Any) -> Any:
        found = self.network(given)
        return {"scores": found["scores"].softmax(-1), "total": found["total"]}


@pytest.mark.slow
def test_probabilities_are_learned_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nnpipe.compilers import _torch_program_compiler

    seen: list[list[bool]] = []
    loss = _torch_program_compiler._compute_loss
    monkeypatch.setattr(
        _torch_program_compiler, "_compute_loss", lambda *args: seen.append(args[2]) or loss(*args)
    )
    source = write_torch_network(tmp_path / "network.pt2", Probabilities())
    pruner = TorchPruner(fine_tuning_steps=100, fine_tuning_rate=0.01)
    tuned = pruner.compile(source, tmp_path / "tuned.pt2", lambda: SAMPLES)
    assert seen[0] == [True, False]
    plain = TorchPruner().compile(source, tmp_path / "plain.pt2")
    assert error(tuned, Probabilities()) < 0.7 * error(plain, Probabilities())


def test_training_that_runs_away_is_refused(source: Artifact, tmp_path: Path) -> None:
    pruner = TorchPruner(fine_tuning_steps=50, fine_tuning_rate=1e30)
    with pytest.raises(CompileError, match="use a smaller --fine-tuning-rate") as caught:
        pruner.compile(source, tmp_path / "made.pt2", lambda: SAMPLES)
    assert_one_line(caught.value)
    assert not (tmp_path / "made.pt2").exists()


def test_a_program_without_weights_is_refused(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def forward(self, given: Any) -> Any:
            return {
                "scores": given["image"].flatten(1)[:, :5].erf(),
                "total": given["extra"][:, :1].sin(),
            }

    source = write_torch_network(tmp_path / "plain.pt2", Plain())
    with pytest.raises(CompileError, match="prune a model before it is quantised") as caught:
        TorchPruner().compile(source, tmp_path / "made.pt2")
    assert_one_line(caught.value)


@pytest.mark.parametrize("sparsity", [-0.1, 1.0])
def test_a_part_that_is_none_is_refused(sparsity: float) -> None:
    with pytest.raises(ConfigError, match="sparsity"):
        TorchPruner(sparsity=sparsity)


@pytest.mark.slow
def test_a_trained_network_gets_its_accuracy_back(tmp_path: Path, shared_data: Path) -> None:
    source, seen, accuracy = trained_resnet(tmp_path, shared_data)
    plain = TorchPruner(sparsity=0.7).compile(source, tmp_path / "plain.pt2")
    pruner = TorchPruner(sparsity=0.7, fine_tuning_steps=120)
    tuned = pruner.compile(source, tmp_path / "tuned.pt2", seen)
    assert accuracy(plain) < 0.6
    assert accuracy(tuned) > 0.8
