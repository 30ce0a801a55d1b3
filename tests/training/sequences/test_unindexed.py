"""Data sets as they are: those that only yield, of PyTorch, TensorFlow and Hugging Face,
continued or refused.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ConfigError
from nnpipe.training._optimisers import convert_datasets
from nnpipe.training.sequences.other_libraries import HuggingFaceSequence, TensorFlowSequence
from nnpipe.training.sequences.samplers import ClassBalancedSampler
from nnpipe.training.sequences.torch_loader import TorchSequence

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
tf = ImportedWhenUsed("tensorflow")


class Walk(torch.utils.data.IterableDataset):
    """Numbers with a random part, drawn from the global generators or from one that nobody
    seeds.
    """

    def __init__(self, unseeded: bool = False) -> None:
        self.generator = random.SystemRandom() if unseeded else random

    def __iter__(self) -> Iterator[Any]:
        for number in range(20):
            yield number + self.generator.random() + float(torch.rand(())), number % 2


class Remembering(Walk):
    """Counts what it has handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.at = self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.at, 20):
            self.at, self.read = number + 1, self.read + 1
            yield float(number), number % 2
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def sequence(dataset: Any, seed: int = 1) -> TorchSequence:
    return TorchSequence(torch.utils.data.DataLoader(dataset, batch_size=6), seed=seed)


def rows(batches: Any) -> list[Any]:
    return [(batch["sample_id"].tolist(), np.asarray(batch["input"]).tolist()) for batch in batches]


def interrupted(make: Any, after: int = 2) -> tuple[list[Any], list[Any]]:
    """Return the rest of an epoch after a stop, and the rest as it would have been."""
    whole = make()
    whole.set_epoch(3)
    expected = rows(whole)
    stopped = make()
    stopped.set_epoch(3)
    batches = iter(stopped)
    for _ in range(after):
        next(batches)
    going = make()
    going.load_state_dict(stopped.state_dict())
    return rows(going), expected[after:]


def test_a_data_set_that_shuffles_by_the_global_generators_is_the_same_again() -> None:
    before = torch.get_rng_state(), random.getstate()
    found, expected = interrupted(lambda: sequence(Walk()))
    assert found == expected != []
    assert (torch.equal(torch.get_rng_state(), before[0]), random.getstate()) == (True, before[1])
    one, two = sequence(Walk()), sequence(Walk(), seed=2)
    assert rows(one) != rows(two)
    assert not one.exact  # what it draws is not known, so it is told that it may differ


def test_a_data_set_that_gives_other_batches_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Walk gives other batches .* state_dict"):
        interrupted(lambda: sequence(Walk(unseeded=True)))


def test_a_data_set_with_a_state_reads_nothing_twice() -> None:
    made: list[Remembering] = []

    def make() -> TorchSequence:
        made.append(Remembering())
        return sequence(made[-1])

    found, expected = interrupted(make)
    assert found == expected
    assert made[-1].read == 8  # of 20, after two batches of 6
    assert make().exact


def test_a_state_that_is_no_json_is_named() -> None:
    class Odd(Remembering):
        def state_dict(self) -> dict[str, Any]:
            return {"at": object()}

    with pytest.raises(ConfigError, match="Odd: its state_dict"):
        rows(sequence(Odd()))


@pytest.mark.slow  # TensorFlow is imported
def test_a_shuffled_data_set_of_tensorflow_is_refused_and_a_seeded_one_goes_on() -> None:
    def make(**options: Any) -> TensorFlowSequence:
        values = tf.data.Dataset.from_tensor_slices((np.arange(100.0), np.arange(100)))
        return TensorFlowSequence(values.shuffle(100, **options).batch(10))

    found, expected = interrupted(lambda: make(seed=3, reshuffle_each_iteration=False))
    assert found == expected
    with pytest.raises(ConfigError, match=r"tf\.data gives other batches"):
        interrupted(make)


@pytest.mark.slow  # TensorFlow is imported
def test_a_data_set_of_tensorflow_can_be_given_as_it_is() -> None:
    values = tf.data.Dataset.from_tensor_slices((np.arange(10.0), np.arange(10))).batch(4)
    found = convert_datasets({"train": values}, 0)
    assert [len(batch["input"]) for batch in found["data"]["train"]] == [4, 4, 2]


@pytest.fixture
def people() -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    image = [np.full((4, 4), n, np.uint8) for n in range(50)]
    columns = {
        "x": [[float(n), 1.0] for n in range(50)],
        "label": [n % 5 == 0 for n in range(50)],
        "image": image,
    }
    return datasets.Dataset.from_dict(columns | {"text": [f"number {n}" for n in range(50)]})


def test_a_data_set_of_hugging_face_can_be_given_as_it_is(people: Any) -> None:
    found = convert_datasets({"train": people, "test": people}, 3)["data"]
    train, test = list(found["train"]), list(found["test"])
    assert [batch["x"].shape for batch in test] == [(32, 2), (18, 2)]
    assert test[0]["text"][:2] == ["number 0", "number 1"]
    assert test[0]["image"].shape == (32, 4, 4)
    assert [row[0] for batch in train for row in batch["x"].tolist()] != list(range(50))
    assert all((batch["x"][:, 0] == batch["sample_id"]).all() for batch in train)


def test_such_a_data_set_goes_on_in_any_order(people: Any) -> None:
    sampler = ClassBalancedSampler(by="label")
    for options in ({"shuffle": True}, {"sampler": sampler}):
        make = partial(HuggingFaceSequence, people.rename_column("x", "input"), batch=8, **options)
        found, expected = interrupted(make)
        assert found == expected != []


def test_a_streamed_data_set_of_hugging_face_goes_on_and_is_refused_in_another_order(
    people: Any,
) -> None:
    seeds = [1, 1, 1, 1, 1, 2]

    def make() -> HuggingFaceSequence:
        streamed = people.rename_column("x", "input").to_iterable_dataset(num_shards=4)
        return HuggingFaceSequence(streamed.shuffle(seed=seeds.pop(0), buffer_size=10), batch=8)

    found, expected = interrupted(make)
    assert found == expected != []
    with pytest.raises(ConfigError, match="streamed data set gives other batches"):
        interrupted(make)
    assert found == expected != []
