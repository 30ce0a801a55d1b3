"""Training in scripts of PyTorch: batches, callbacks, and the written files."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def parts(helpers):
    return helpers(
        "pytorch", "shuffle_batches", "Checkpoint", "EarlyStopping", "read_weights", "write_weights"
    )


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [
        (49, 16, [16, 16, 17]),
        (48, 16, [16, 16, 16]),
        (50, 16, [16, 16, 16, 2]),
        (3, 1, [1, 1, 1]),
        (1, 16, [1]),
    ],
)
def test_batches_take_each_sample_once_and_none_alone(parts, count, size, lengths):
    found = parts["shuffle_batches"](count, size)
    assert [len(rows) for rows in found] == lengths
    assert torch.cat(found).sort().values.tolist() == list(range(count))


def test_the_best_epoch_is_kept_even_if_the_first_gave_no_number(parts, tmp_path):
    network, path = torch.nn.Linear(1, 1, bias=False), tmp_path / "best.safetensors"
    keep = parts["Checkpoint"](path, "test_loss", False)
    kept = []
    for epoch, loss in enumerate([float("nan"), 3.0, 4.0, 2.0, float("nan"), 2.5], 1):
        torch.nn.init.constant_(network.weight, epoch)
        keep(network, epoch, 6, {"test_loss": loss})
        kept.append(parts["read_weights"](path)["weight"].item() if path.exists() else None)
    assert kept == [None, 2, 2, 4, 4, 4]


def test_a_training_ends_after_epochs_without_a_gain(parts):
    stop = parts["EarlyStopping"]("test_accuracy", True, 2, 0.1)
    figures = [float("nan"), 0.5, 0.55, 0.65, 0.7, 0.7]
    assert [stop(None, 0, 6, {"test_accuracy": value}) for value in figures] == [False] * 5 + [True]


def test_weights_of_every_layout_are_written_as_they_are(parts, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    network = torch.nn.Module()
    random = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    tensors = {
        "turned": random.T,
        "part": random[:, 1:3],
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "count": torch.tensor(7),
        "wide": random.double(),
        "flag": torch.tensor([True, False]),
    }
    for name, value in tensors.items():
        network.register_buffer(name, value)
    path = tmp_path / "deep" / "weights.safetensors"
    parts["write_weights"](path, network)
    stored = numpy.load_file(path)
    assert stored["count"].dtype == np.int64
    for name, value in tensors.items():
        np.testing.assert_array_equal(stored[name], value.float() if name != "count" else value)
        np.testing.assert_array_equal(parts["read_weights"](path)[name], stored[name])
    assert [item.name for item in path.parent.iterdir()] == ["weights.safetensors"]
