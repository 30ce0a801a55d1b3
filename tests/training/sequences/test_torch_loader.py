from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.torch_loader import TorchSequence, to_data_loader

sys.path.append(str(Path(__file__).parent))
import pipeline_functions as functions

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Augmented:
    """Draws from all global generators."""

    def __init__(self, samples=20):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        drawn = [float(torch.rand(())), float(np.random.rand()), random.random()]
        return torch.tensor([index, *drawn], dtype=torch.float64), index % 3


def loader(workers=0, **more):
    context = {"multiprocessing_context": "spawn"} if workers else {}
    return torch.utils.data.DataLoader(
        Augmented(), batch_size=6, shuffle=True, num_workers=workers, **context, **more
    )


def numbers(sequence, epoch):
    sequence.set_epoch(epoch)
    return [
        (batch["sample_id"].tolist(), batch["input"].tolist(), batch["target"].tolist())
        for batch in sequence
    ]


def test_a_loaders_batches_get_their_true_ids():
    sequence = TorchSequence(loader(), seed=1)
    found = numbers(sequence, 1)
    assert [len(ids) for ids, _, _ in found] == sequence.sizes() == [6, 6, 6, 2]
    assert sorted(number for ids, _, _ in found for number in ids) == list(range(20))
    for ids, inputs, targets in found:
        assert [row[0] for row in inputs] == ids
        assert targets == [number % 3 for number in ids]


@pytest.mark.parametrize("generator", [False, True])
def test_order_and_augmentation_follow_from_seed_and_epoch(generator):
    more = {"generator": torch.Generator()} if generator else {}
    sequence = TorchSequence(loader(**more), seed=1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    first = numbers(sequence, 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]
    assert numbers(sequence, 2) != first
    torch.rand(3), np.random.rand(3), random.random()
    assert numbers(sequence, 1) == first
    assert numbers(TorchSequence(loader(), seed=2), 1) != first


@pytest.mark.slow
def test_workers_change_nothing():
    sequence = TorchSequence(
        torch.utils.data.DataLoader(functions.drawing_dataset(), batch_size=6, shuffle=True)
    )
    wanted = numbers(sequence, 1)
    with_workers = torch.utils.data.DataLoader(
        functions.drawing_dataset(),
        batch_size=6,
        shuffle=True,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    assert numbers(TorchSequence(with_workers), 1) == wanted


def test_a_state_continues_without_loading_twice():
    sequence = TorchSequence(loader(), seed=1)
    whole = numbers(sequence, 5)
    batches = iter(sequence)
    next(batches), next(batches)
    other = TorchSequence(loader(), seed=1)
    other.load_state_dict(sequence.state_dict())
    rest = [
        (batch["sample_id"].tolist(), batch["input"].tolist(), batch["target"].tolist())
        for batch in other
    ]
    assert rest == whole[2:]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return ({"input": torch.tensor(float(number))} for number in range(10))


def test_without_indices_ids_are_counted():
    sequence = TorchSequence(torch.utils.data.DataLoader(Stream(), batch_size=4))
    assert not sequence.exact
    assert [batch["sample_id"].tolist() for batch in sequence] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    next(iter(sequence))
    sequence.load_state_dict(sequence.state_dict())
    assert [batch["input"].tolist() for batch in sequence] == [[4, 5, 6, 7], [8, 9]]
    with pytest.raises(TypeError):
        len(sequence)


def test_parts_without_a_name_are_refused():
    with pytest.raises(ConfigError, match="give more names"):
        next(iter(TorchSequence(loader(), names=("input",))))


def test_a_chain_goes_on_from_a_loader():
    chain = TorchSequence(loader(), seed=1).rebatch(5)
    assert [len(batch["sample_id"]) for batch in chain] == chain.sizes() == [5, 5, 5, 5]


def test_a_sequence_becomes_a_loader():
    sequence = ArraySequence(
        {"input": np.arange(10, dtype=np.float32), "text": list("abcdefghij")}, batch=4
    )
    made = to_data_loader(sequence)
    assert len(made) == 3
    batches = list(made)
    assert batches[2]["input"].dtype == torch.float32
    assert batches[2]["input"].tolist() == batches[2]["sample_id"].tolist() == [8, 9]
    assert batches[2]["text"] == ["i", "j"]
