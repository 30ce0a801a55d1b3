"""Networks and data that a configuration puts together."""

# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from nnpipe.core.errors import ConfigError
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.experiment.configuration import Configuration
from nnpipe.training.network import Head, Network
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.regression import RegressionOutput
from nnpipe.training.sequences.dataset import DatasetSequence


def test_a_network_gives_its_outputs() -> None:
    body, own = torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)
    regression = "nnpipe.training.outputs.regression.RegressionOutput"
    heads = {
        "kind": Head(
            target="label", weights="weight", options={"label_smoothing": 0.1, "top": [2]}
        ),
        "size": Head(regression, "size", layers=[own], options={"scale": 0.5}),
    }
    network = Network([body], heads, input="x", scale=0.25)
    x = np.random.default_rng(0).integers(0, 9, (5, 4))
    batch = {
        "x": torch.from_numpy(x),
        "label": torch.zeros(5, dtype=torch.int64),
        "weight": torch.ones(5),
        "size": torch.ones(5, 1),
    }
    found = network.module(batch)
    assert isinstance(found["kind"], ClassificationOutput)
    assert isinstance(found["size"], RegressionOutput)
    assert found["kind"].top == (2,)
    assert (found["kind"].label_smoothing, found["size"].scale) == (0.1, 0.5)
    torch.testing.assert_close(found["kind"].output, body(torch.from_numpy(x).float() / 4))
    torch.testing.assert_close(found["size"].output, own(found["kind"].output))
    assert found["kind"].weights is batch["weight"]
    assert len(list(network.module.parameters())) == 4
    assert set(network.state_dict()) == {"module"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network([], {}), "without an output"),
        (lambda: Network([], {"kind": 1}), "'kind' is a int; it must be a Head"),
        (lambda: Head("nowhere.Output"), r"nowhere\.Output cannot be found"),
        (
            lambda: Network([], {"kind": Head()}).module({"x": 1}),
            "a batch has no 'input'; it has x",
        ),
        (
            lambda: Network([torch.nn.ReLU(), torch.nn.Linear(4, 3)], {"kind": Head()}).module(
                {"input": torch.ones(2, 5), "label": torch.zeros(2, dtype=torch.int64)}
            ),
            r"layers\.1, Linear\(in_features=4, .*, does not fit values of shape \(2, 5\): mat1 "
            r"and mat2",
        ),
    ],
)
def test_what_does_not_fit_is_named(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_split_of_a_data_set_comes_in_batches() -> None:
    tree = {
        "class": "nnpipe.training.sequences.dataset.DatasetSequence",
        "arguments": {
            "dataset": {"class": "nnpipe.datasets.digits.DigitsDataset"},
            "split": "test",
            "batch": 100,
            "shuffle": True,
        },
    }
    sequence = Configuration({"data": tree}).build()["data"]
    dataset = DigitsDataset()
    dataset.prepare()
    wanted = dataset.split("test")
    assert len(sequence) == len(list(sequence)) == -(-len(wanted) // 100)
    orders = []
    for epoch in (1, 2):
        sequence.set_epoch(epoch)
        batches = list(sequence)
        ids = np.concatenate([batch["sample_id"] for batch in batches])
        assert sorted(ids) == sorted(wanted)
        _, truth = dataset.read(ids)
        np.testing.assert_array_equal(
            np.concatenate([batch["label"] for batch in batches]), truth["label"]
        )
        orders.append(ids.tolist())
    assert orders[0] != orders[1]
    sequence.set_epoch(2)
    first = next(iterator := iter(sequence))
    state = sequence.state_dict()
    iterator.close()
    sequence.load_state_dict(state)
    rest = [batch["sample_id"] for batch in sequence]
    assert np.concatenate([first["sample_id"], *rest]).tolist() == orders[1]


def test_a_single_sample_joins_the_last_batch() -> None:
    dataset = DigitsDataset()
    dataset.prepare()
    count = len(dataset.split("test"))
    assert DatasetSequence(dataset, "test", batch=count - 1).sizes() == [count]


def test_channels_may_be_last_and_outputs_take_further_features() -> None:
    from nnpipe.training.outputs.detection import DetectionOutput

    detection = "nnpipe.training.outputs.detection.DetectionOutput"
    head = Head(
        detection, "boxes", features={"classes": "class"}, options={"size": [16, 8], "strides": [8]}
    )
    network = Network(
        [torch.nn.Conv2d(3, 7, 8, 8)], {"box": head}, input="image", channels_last=True
    )
    image = torch.rand(2, 16, 8, 3)
    batch = {
        "image": image,
        "boxes": torch.tensor([[[0.0, 0, 4, 4]]] * 2),
        "class": torch.tensor([[1]] * 2),
    }
    found = network.module(batch)["box"]
    assert found.classes is batch["class"]
    cells = network.module.layers(image.permute(0, 3, 1, 2))
    apart = DetectionOutput(
        torch.stack([cells[..., 0, 0], cells[..., 1, 0]], 1),
        batch["boxes"],
        classes=batch["class"],
        size=(16, 8),
        strides=(8,),
    )
    torch.testing.assert_close(found.compute_losses(), apart.compute_losses())
    with pytest.raises(ConfigError, match="a batch has no 'class'"):
        network.module({"image": image, "boxes": batch["boxes"]})
