"""Comparing networks, and keeping the weights of what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe import layers as nn
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.transfer import ChangedLayer, compare, transfer
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.read_file import read_keras
from nnpipe.layers.torch.to_torch import to_torch, torch_weights


def digits(
    classes: int = 10,
    *,
    frozen: bool = False,
    activation: str = "relu",
    extra: bool = False,
    pool: Any = nn.MaxPool2d,
) -> nn.NetworkGraph:
    x = nn.Input((12, 12, 1), name="x")
    y = nn.Conv2d(x, 4, 3, activation=activation, trainable=not frozen, name="conv")
    y = nn.Flatten(pool(y, 2, name="pool"), name="flat")
    y = nn.Dense(y, 8, name="extra") if extra else y
    return nn.network(x, nn.Dense(y, classes, name="class"))


def test_a_network_is_like_itself() -> None:
    delta = compare(digits(), digits())
    assert delta.kept == ("x", "conv", "pool", "flat", "class")
    assert (delta.changed, delta.new, delta.removed, delta.frozen, delta.thawed) == (
        (),
        (),
        (),
        (),
        (),
    )
    assert not delta.reordered


def test_every_kind_of_difference_is_told() -> None:
    delta = compare(
        digits(), digits(3, frozen=True, activation="tanh", extra=True, pool=nn.AvgPool2d)
    )
    assert delta.kept == ("x", "flat")
    assert delta.changed == (
        ChangedLayer("conv", ("activation",)),
        ChangedLayer("pool", ("class",)),
        ChangedLayer("class", ("units", "inputs")),
    )
    assert (delta.new, delta.removed, delta.frozen, delta.thawed) == (("extra",), (), ("conv",), ())
    back = compare(delta.after, digits())
    assert (back.new, back.removed, back.frozen, back.thawed) == ((), ("extra",), (), ("conv",))


def test_frozen_alone_is_no_change_of_the_layer() -> None:
    delta = compare(digits(), digits(frozen=True))
    assert delta.kept == ("x", "conv", "pool", "flat", "class")
    assert delta.frozen == ("conv",)


def test_inputs_in_another_order_are_told() -> None:
    a, b = nn.Input((4,), name="a"), nn.Input((4,), name="b")
    both = nn.Subtract([a, b])
    one, other = nn.network([a, b], both), nn.network([b, a], both)
    assert compare(one, other).reordered
    assert not compare(one, one).reordered
    assert compare(one, nn.network([a, b], nn.Subtract([b, a]))).changed == (
        ChangedLayer("subtract", ("inputs",)),
    )


def test_weights_of_what_stayed_are_kept() -> None:
    before, after = digits(), digits(3, frozen=True, activation="tanh")
    weights = initial_weights(before, 9)
    moved = transfer(before, weights, after, seed=1)
    assert moved.stayed == ("conv/kernel", "conv/bias")
    assert moved.fresh == ("class/kernel", "class/bias")
    np.testing.assert_array_equal(moved.weights["conv/kernel"], weights["conv/kernel"])
    np.testing.assert_array_equal(
        moved.weights["class/kernel"], initial_weights(after, 1)["class/kernel"]
    )
    moved.weights["conv/kernel"][...] = 0
    assert weights["conv/kernel"].any(), "the weights that were given are not touched"


def test_a_layer_of_another_class_keeps_nothing() -> None:
    x = nn.Input((4, 4), name="x")
    before = nn.network(x, nn.Dense(x, 4, name="d"))
    after = nn.network(x, nn.LayerNorm(nn.SimpleRNN(x, 4, return_sequences=True, name="d")))
    moved = transfer(before, initial_weights(before), after)
    assert moved.stayed == ()
    assert set(moved.fresh) == set(moved.weights)


def test_weights_within_a_network_within_are_kept() -> None:
    x = nn.Input((12, 12, 1), name="x")
    before = nn.network(x, nn.Submodel(x, digits(), name="old"))
    after = nn.network(
        x, nn.Dense(nn.Submodel(x, digits(), name="old", trainable=False), 2, name="new")
    )
    moved = transfer(before, initial_weights(before), after)
    assert moved.fresh == ("new/kernel", "new/bias")
    assert compare(before, after).frozen == ("old",)


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"class/kernel: has the shape"):
        transfer(digits(), initial_weights(digits(3)), digits())


def wider(*, frozen: bool) -> nn.NetworkGraph:
    x = nn.Input((12, 12, 1), name="x")
    y = nn.Conv2d(x, 32, 3, trainable=not frozen, name="conv")
    return nn.network(x, nn.Dense(nn.Flatten(y), 10, name="class"))


def test_a_frozen_layer_that_would_stay_random_is_refused_by_name() -> None:
    weights = initial_weights(digits())
    message = (
        r"conv: is frozen, but its kernel \(3, 3, 1, 32\) was \(3, 3, 1, 4\), so it would "
        r"stay random"
    )
    with pytest.raises(ConfigError, match=message):
        transfer(digits(), weights, wider(frozen=True))
    assert "conv/kernel" in transfer(digits(), weights, wider(frozen=False)).fresh
    x = nn.Input((12, 12, 1), name="x")
    within = nn.network(x, nn.Submodel(x, wider(frozen=True), name="old"))
    with pytest.raises(ConfigError, match=r"old/conv: is frozen, but its kernel .* was not there"):
        transfer(digits(), weights, within)


def test_a_real_network_learns_new_classes_with_its_features_frozen(shared_data: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    reading = read_keras(shared_data / "keras_files" / "32_32_1_conv_sequential.h5")
    assert reading.graph is not None
    x = nn.Input((28, 28, 1), name="conv2d_8_input")
    y = nn.Flatten(
        nn.MaxPool2d(nn.Conv2d(x, 4, 3, activation="relu", trainable=False, name="conv2d_8"), 2)
    )
    after = nn.network(
        x,
        nn.Dense(nn.Dense(y, 128, "relu", trainable=False, name="dense_10"), 2, name="odd or even"),
    )
    moved = transfer(reading.graph, reading.weights, after)
    assert moved.fresh == ("odd or even/kernel", "odd or even/bias")
    module = to_torch(after, moved.weights).train()
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    images, truth = torch.rand(8, 28, 28, 1), torch.arange(8) % 2
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(images), truth).backward()
        optimiser.step()
    trained = torch_weights(module)
    for name in moved.stayed:
        np.testing.assert_array_equal(trained[name], moved.weights[name])
    assert not np.array_equal(trained["odd or even/kernel"], moved.weights["odd or even/kernel"])
