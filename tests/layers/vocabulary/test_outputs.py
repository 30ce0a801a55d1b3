"""Outputs that carry their loss: trained by the trainer and by Keras, both by the same number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe import layers as nn
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.loss_outputs import find_loss_outputs, to_inference
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.from_config import from_keras
from nnpipe.layers.keras.to_config import OWN, network_config
from nnpipe.layers.torch.to_torch import to_torch, torch_weights
from nnpipe.layers.torch.to_trainer import PENALTY, compile_arguments, to_trainer
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.output import Output, compute_figure
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RANDOM = np.random.default_rng(3)
LABELS = RANDOM.integers(0, 4, 6)
MASK = np.where(RANDOM.random((6, 3, 5)) < 0.2, 9, RANDOM.integers(0, 4, (6, 3, 5)))
# What is judged, the shape of a sample, and the truth.
JUDGED: list[tuple[Any, tuple[int, ...], np.ndarray]] = [
    (lambda x: nn.OutputClassification(x, "truth", name="out"), (4,), LABELS),
    (lambda x: nn.OutputClassification(x, "truth", 0.2, (2,), name="out"), (4,), LABELS),
    (
        lambda x: nn.OutputClassificationBinary(x, "truth", name="out"),
        (4,),
        RANDOM.integers(0, 2, (6, 4)),
    ),
    (
        lambda x: nn.OutputClassificationBinary(x, "truth", 3.0, name="out"),
        (4,),
        RANDOM.integers(0, 2, (6, 4)),
    ),
    (lambda x: nn.OutputRegression(x, "truth", name="out"), (4, 2), RANDOM.normal(size=(6, 4, 2))),
    (
        lambda x: nn.OutputRegression(x, "truth", "absolute", name="out"),
        (4,),
        RANDOM.normal(size=(6, 4)),
    ),
    (
        lambda x: nn.OutputRegression(x, "truth", "huber", name="out"),
        (4,),
        RANDOM.normal(size=(6, 4)),
    ),
    (lambda x: nn.OutputSegmentation(x, "truth", ignore=9, name="out"), (3, 5, 4), MASK),
    (lambda x: nn.OutputSegmentation(x, "truth", "dice", 9, name="out"), (3, 5, 4), MASK),
    (
        lambda x: nn.OutputSegmentation(
            x, "truth", ignore=9, data_format="channels_first", name="out"
        ),
        (4, 3, 5),
        MASK,
    ),
    (lambda x: nn.OutputTriplets(x, "truth", name="out"), (3, 4), LABELS),
    (lambda x: nn.OutputTriplets(x, "truth", 0.2, name="out"), (3, 4), LABELS),
]


def cnn(**last: Any) -> nn.NetworkGraph:
    x = nn.Input((8, 8, 1), name="image")
    y = nn.Flatten(nn.MaxPool2d(nn.Conv2d(x, 4, 3, activation="relu"), 2))
    return nn.network(
        x, nn.OutputClassification(nn.Dense(y, 3, **last), "label", name="kind"), "shapes"
    )


def images(count: int = 90) -> dict[str, np.ndarray]:
    """Pictures with a bright row, a bright column, or none."""
    random = np.random.default_rng(0)
    pixels, labels = random.random((count, 8, 8, 1), dtype=np.float32), random.integers(0, 3, count)
    for number, label in enumerate(labels):
        place = random.integers(1, 7)
        if label == 1:
            pixels[number, place] += 2
        if label == 2:
            pixels[number, :, place] += 2
    return {"image": pixels, "label": labels}


def loss_of(output: Output) -> float:
    return float(output.loss().detach())


@pytest.mark.parametrize(("declare", "shape", "truth"), JUDGED)
def test_keras_and_the_trainer_learn_by_the_same_loss(
    declare: Any, shape: tuple[int, ...], truth: np.ndarray
) -> None:
    from nnpipe.layers.keras.to_keras import to_keras

    x = nn.Input(shape, name="x")
    graph = nn.network(x, declare(x))
    given = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32)
    (output,) = to_trainer(graph)(
        {"x": torch.from_numpy(given), "truth": torch.from_numpy(truth)}
    ).values()
    model = to_keras(graph)
    model.compile("sgd", **compile_arguments(graph))
    figures = model.evaluate(given, truth, verbose=0, return_dict=True)
    assert loss_of(output) > 0.01
    assert figures["loss"] == pytest.approx(loss_of(output), rel=1e-5)
    for name, metric in output.metrics().items():
        if name in figures:
            below = (
                np.float64(6) if metric.denominator is None else metric.denominator.numpy().sum(0)
            )
            value = compute_figure(metric.numerator.numpy().sum(0), below, metric.finish)
            assert figures[name] == pytest.approx(value, rel=1e-5), name


def test_weights_and_scales_count_in_both() -> None:
    from nnpipe.layers.keras.to_keras import to_keras

    x = nn.Input((4,), name="x")
    two = [
        nn.OutputRegression(nn.Dense(x, 2), "a", weights="counts", scale=0.5, name="first"),
        nn.OutputClassification(nn.Dense(x, 4), "b", weights="counts", scale=3.0, name="second"),
    ]
    graph = nn.network(x, two)
    batch = {
        "x": RANDOM.normal(size=(6, 4)),
        "a": RANDOM.normal(size=(6, 2)),
        "b": LABELS,
        "counts": np.arange(6.0),
    }
    outputs = to_trainer(graph, initial_weights(graph))(
        {name: torch.tensor(value) for name, value in batch.items()}
    )
    model = to_keras(graph, initial_weights(graph))
    model.compile("sgd", **compile_arguments(graph))
    counts = [batch["counts"], batch["counts"]]
    truth = [batch["a"], batch["b"]]
    figures = model.evaluate(batch["x"], truth, sample_weight=counts, verbose=0, return_dict=True)
    assert figures["loss"] == pytest.approx(
        sum(loss_of(output) for output in outputs.values()), rel=1e-5
    )


def test_an_embedding_is_looked_at_and_not_learned_from() -> None:
    from nnpipe.layers.keras.to_keras import to_keras

    x = nn.Input((4,), name="x")
    features = nn.Dense(x, 3, name="features")
    graph = nn.network(
        x,
        [
            nn.OutputClassification(features, "label", name="kind"),
            nn.OutputEmbedding(features, "label", name="seen"),
        ],
    )
    outputs = to_trainer(graph)({"x": torch.ones(2, 4), "label": torch.tensor([0, 1])})
    assert loss_of(outputs["seen"]) == 0
    assert outputs["seen"].target.tolist() == [0, 1]
    model = to_keras(graph)
    model.compile("sgd", **compile_arguments(graph))
    figures = model.evaluate(
        np.ones((2, 4)), [np.array([0, 1]), np.zeros(2)], verbose=0, return_dict=True
    )
    assert figures["loss"] == pytest.approx(loss_of(outputs["kind"]), rel=1e-5)


def test_the_trainer_learns_a_declared_network() -> None:
    model = to_trainer(cnn())
    trainer = Trainer(TrainerOptions.from_json({"num_epochs": 8, "seed": 1}))
    history = trainer.fit(
        model, {"made": {"train": ArraySequence(images(), batch=10)}}, optimiser=AdamW(rate=0.02)
    )
    assert history.last["made/train/kind/accuracy"] > 0.9
    assert torch_weights(model.network).keys() == initial_weights(cnn()).keys()


def test_penalties_add_to_the_loss_and_constraints_hold_after_training() -> None:
    graph = cnn(
        kernel_regularizer={"class_name": "L2", "config": {"l2": 0.5}}, kernel_constraint="non_neg"
    )
    batch = {name: torch.from_numpy(value) for name, value in images(6).items()}
    model = to_trainer(graph)
    outputs = model(batch)
    kernel = initial_weights(graph)["dense/kernel"]
    assert loss_of(outputs[PENALTY]) == pytest.approx(
        0.5 * float(np.square(kernel.clip(0)).sum()), rel=1e-5
    )
    Trainer(TrainerOptions.from_json({"num_epochs": 1})).fit(
        model, {"made": {"train": ArraySequence(images(), batch=10)}}, optimiser=AdamW(rate=0.1)
    )
    assert torch_weights(model.network)["dense/kernel"].min() == 0
    assert PENALTY not in to_trainer(cnn())(batch)


def test_a_finished_network_gives_what_its_outputs_mean() -> None:
    x = nn.Input((4,), name="x")
    ends = [
        nn.OutputClassification(x, "a", name="kind"),
        nn.OutputClassificationBinary(x, "b", name="both"),
        nn.OutputRegression(x, "c", name="value"),
    ]
    graph = nn.network(x, ends)
    done = to_inference(graph)
    assert list(done.layers) == ["x", "kind", "both", "value"]
    assert not find_loss_outputs(done)
    given = torch.tensor([[1.0, 2.0, -1.0, 0.0]])
    kind, both, value = to_torch(done)(given)
    torch.testing.assert_close(kind, given.softmax(-1))
    torch.testing.assert_close(both, given.sigmoid())
    torch.testing.assert_close(value, given)
    y = nn.Input((2, 2, 4), name="y")
    mask = to_inference(nn.network(y, nn.OutputSegmentation(y, "mask")))
    torch.testing.assert_close(
        to_torch(mask)(given.expand(1, 2, 2, 4)), given.softmax(-1).expand(1, 2, 2, 4)
    )


def test_keras_takes_outputs_for_what_it_knows_and_files_keep_what_they_say(tmp_path: Path) -> None:
    import keras

    from nnpipe.layers.keras.read_file import read_keras
    from nnpipe.layers.keras.to_config import write_keras

    graph = cnn()
    weights = initial_weights(graph)
    path = tmp_path / "net.keras"
    write_keras(path, graph, weights)
    assert read_keras(path).graph == graph
    model = keras.saving.load_model(path)
    assert type(model.get_layer("kind")).__name__ == "Identity"
    # Keras writes what it knows: the loss is not among that.
    again = from_keras(json.loads(model.to_json())).graph
    assert again is not None
    assert isinstance(again.layers["kind"], nn.Identity)


def test_what_a_newer_version_says_of_an_output_is_kept() -> None:
    config = network_config(cnn())
    (layer,) = [layer for layer in config["config"]["layers"] if OWN in layer]
    layer[OWN]["config"]["sharpness"] = 3
    parsed = from_keras(config)
    assert [(p.code, p.path) for p in parsed.problems] == [
        ("unknown-argument", "config.layers[5].config.sharpness")
    ]
    assert parsed.graph is not None
    assert network_config(parsed.graph)["config"]["layers"][5][OWN] == layer[OWN]
    for hostile in ({"class_name": ["x"]}, "text", {"class_name": "Dense"}, None):
        layer[OWN] = hostile
        assert [p.code for p in from_keras(config).problems] == ["unknown-layer"]


def test_what_nothing_would_be_learned_from_is_refused() -> None:
    x = nn.Input((4,), name="x")
    inside = nn.OutputClassification(x, "label", name="inside")
    refused = {
        "no output carries a loss": nn.network(x, nn.Dense(x, 3)),
        "inside carries a loss and is not an output": nn.network(
            x, nn.OutputRegression(nn.Dense(inside, 3), "y", name="end")
        ),
        "s/inside carries a loss and is not an output": nn.network(
            x, nn.OutputRegression(nn.Submodel(x, nn.network(x, inside), name="s"), "y", name="end")
        ),
        "inside carries a loss and is used several times": nn.network(
            x, [inside, inside.on(nn.Dense(x, 4))]
        ),
    }
    for message, graph in refused.items():
        assert graph.problems() == ()
        for build in (to_trainer, compile_arguments):
            with pytest.raises(ConfigError, match=message):
                build(graph)


def test_a_batch_that_lacks_what_is_asked_for_is_told() -> None:
    with pytest.raises(ConfigError, match="shapes: a batch has no 'label'; it has image, kind"):
        to_trainer(cnn())({"image": torch.ones(1, 8, 8, 1), "kind": torch.ones(1)})


def test_shapes_that_fit_no_output_are_problems() -> None:
    x = nn.Input((4, 4, 3), name="x")
    for end in (
        nn.OutputClassification(x, "y"),
        nn.OutputTriplets(x),
        nn.OutputSegmentation(nn.Flatten(x), "y"),
    ):
        assert [p.code for p in nn.network(x, end).problems()] == ["shape"]
    faulty = nn.network(x, nn.OutputRegression(x, "", "far", weights="", scale=-1))
    assert sorted(p.path.partition(".")[2] for p in faulty.problems()) == [
        "distance",
        "scale",
        "target",
        "weights",
    ]


TRAINED = {
    nn.OutputClassification: "ClassificationOutput",
    nn.OutputClassificationBinary: "BinaryOutput",
    nn.OutputRegression: "RegressionOutput",
    nn.OutputSegmentation: "SegmentationOutput",
    nn.OutputTriplets: "TripletOutput",
}
"""What the trainer makes of each output that carries a loss."""


def test_outputs_are_the_ones_that_the_trainer_knows() -> None:
    for declare, shape, truth in JUDGED:
        x = nn.Input(shape, name="x")
        made = to_trainer(nn.network(x, declare(x)))(
            {"x": torch.zeros(6, *shape), "truth": torch.from_numpy(truth)}
        )
        (output,) = made.values()
        assert isinstance(output, Output)
        assert type(output).__name__ == TRAINED[type(declare(()))]
    assert {type(declare(())) for declare, _, _ in JUDGED} == TRAINED.keys()
