"""Any network, drawn at random: what is written is read again, and every backend computes the
same.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe import layers as nn
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.from_config import from_keras
from nnpipe.layers.keras.to_config import network_config
from nnpipe.layers.keras.to_keras import to_keras
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary import initialisers, regularisers

SMALL = st.floats(0, 2, width=32)
SEED = st.none() | st.integers(0, 99)
INITIALISER = st.one_of(
    st.builds(initialisers.GlorotUniform, seed=SEED),
    st.builds(initialisers.RandomNormal, SMALL, SMALL, SEED),
    st.builds(initialisers.Constant, SMALL),
    st.builds(
        initialisers.VarianceScaling,
        st.floats(0.1, 2),
        st.sampled_from(["fan_in", "fan_out", "fan_avg"]),
        st.sampled_from(["uniform", "normal", "untruncated_normal"]),
    ),
)
REGULARISER = (
    st.none() | st.builds(regularisers.L1L2, SMALL, SMALL) | st.builds(regularisers.L2, SMALL)
)
CONSTRAINT = (
    st.none()
    | st.builds(regularisers.MaxNorm, SMALL, st.integers(0, 1))
    | st.just(regularisers.NonNeg())
)
FUNCTION = st.sampled_from(["linear", "relu", "tanh", "sigmoid", "softmax", "gelu", "elu"])
SOME_NAME = st.just("") | st.text(
    st.characters(codec="utf-8", exclude_characters="/."), min_size=1, max_size=9
)


def weighted(draw: st.DrawFn, *names: str) -> dict[str, Any]:
    kinds = {"initializer": INITIALISER, "regularizer": REGULARISER, "constraint": CONSTRAINT}
    return {f"{name}_{kind}": draw(strategy) for name in names for kind, strategy in kinds.items()}


def more(draw: st.DrawFn, x: Any, rank: int) -> Any:
    """Put one more layer on a vector or an image, which stays one."""
    size = draw(st.integers(1, 3))
    sizes = st.tuples(st.integers(1, 2), st.integers(1, 2)) | st.just(size)
    choices = ["dense", "norm", "drop", "activation", "prelu", "layer norm", "frozen"]
    choice = draw(
        st.sampled_from(
            [*choices, *(["conv", "pool", "depthwise", "pad"] if rank == 2 else ["lstm"])]
        )
    )
    if choice == "dense":
        own = weighted(draw, "kernel", "bias")
        return nn.Dense(
            x, draw(st.integers(1, 4)), draw(FUNCTION), use_bias=draw(st.booleans()), **own
        )
    if choice == "conv":
        own = weighted(draw, "kernel", "bias")
        padding = draw(st.sampled_from(["same", "valid"]))
        return nn.Conv2d(
            x,
            draw(st.integers(1, 3)),
            1 if padding == "valid" else draw(sizes),
            padding=padding,
            **own,
        )
    if choice == "depthwise":
        return nn.DepthwiseConv2d(x, size, padding="same", depth_multiplier=draw(st.integers(1, 2)))
    if choice == "pool":
        pool = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))
        return pool(x, draw(sizes), draw(st.none() | sizes), "same")
    if choice == "pad":
        return nn.Crop2d(nn.ZeroPad2d(x, ((1, 2), (0, size))), ((1, 0), (0, 0)))
    if choice == "lstm":
        return nn.Bidirectional(
            nn.RepeatVector(x, 2), nn.LSTM((), draw(st.integers(1, 3)), dropout=0.5), "sum"
        )
    if choice == "norm":
        return nn.BatchNorm(x, momentum=draw(st.floats(0, 1)), **weighted(draw, "gamma", "beta"))
    if choice == "layer norm":
        return nn.LayerNorm(x, center=draw(st.booleans()))
    if choice == "prelu":
        return nn.PReLU(x, **weighted(draw, "alpha"))
    if choice == "frozen":
        return nn.Dense(x, 2, trainable=False)
    return (
        nn.Dropout(x, draw(st.floats(0, 0.9)))
        if choice == "drop"
        else nn.Activation(x, draw(FUNCTION))
    )


@st.composite
def graphs(draw: st.DrawFn, names: bool = True, deep: int = 1) -> nn.NetworkGraph:
    """Draw a network of one or two inputs with branches that meet, shared layers and networks
    within.
    """
    rank = draw(st.sampled_from([0, 2]))
    inputs = [nn.Input((5, 4, 2) if rank else (4,)) for _ in range(draw(st.integers(1, 2)))]
    tensors: list[Any] = list(inputs)
    for _ in range(draw(st.integers(1, 6))):
        x = draw(st.sampled_from(tensors))
        kind = draw(st.sampled_from(["more", "more", "more", "join", "share", "inside"]))
        if kind == "join":
            flat = [nn.Flatten(t) for t in (x, draw(st.sampled_from(tensors)))]
            made = nn.Concatenate(flat)
            made = nn.RepeatVector(nn.Dense(made, 4), 2) if rank else nn.Dense(made, 4)
            made = nn.Reshape(made, (2, 2, 2)) if rank else made
        elif kind == "share":
            first = nn.Activation(x, draw(FUNCTION))
            made = first.on(
                draw(st.sampled_from(inputs)), training=draw(st.sampled_from([None, False]))
            )
            tensors.append(first)
        elif kind == "inside" and deep:
            inner = draw(
                graphs(names=False, deep=0).filter(
                    lambda g: len(g.inputs) == 1 and len(g.outputs) == 1
                )
            )
            shape = inner.layers[inner.inputs[0].layer].shape  # type: ignore[attr-defined]
            size = int(np.prod(shape))
            made = nn.Submodel(nn.Reshape(nn.Dense(nn.Flatten(x), size), shape), inner)
            made = nn.Dense(nn.Flatten(made), 8 if rank else 4)
            made = nn.Reshape(made, (2, 2, 2)) if rank else made
        else:
            made = more(draw, x, rank)
        tensors.append(made)
    used = nn.Concatenate([nn.Flatten(t) for t in (tensors[-1], *inputs)])
    if draw(st.booleans()) and deep:
        weights = draw(st.none() | st.just("counts"))
        used = nn.OutputClassification(
            used, "label", draw(st.floats(0, 1)), weights=weights, name=draw(SOME_NAME)
        )
    outputs = [used, *draw(st.lists(st.sampled_from(tensors[len(inputs) :]), max_size=2))]
    return nn.network(inputs, outputs, draw(SOME_NAME) or "network" if names else "network")


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_what_is_written_is_read_again(graph: nn.NetworkGraph) -> None:
    assert graph.problems() == ()
    parsed = from_keras(json.loads(json.dumps(network_config(graph))))
    assert parsed.problems == ()
    assert parsed.graph == graph


@pytest.mark.filterwarnings("ignore:.*You are using a softmax over axis")  # which is what was drawn
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(names=False))
def test_keras_and_pytorch_build_it_and_agree(graph: nn.NetworkGraph) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    weights = initial_weights(graph)
    inputs: list[Any] = [
        np.random.default_rng(1).normal(size=(2, *graph.layers[ref.layer].shape)).astype("float32")  # type: ignore[attr-defined]
        for ref in graph.inputs
    ]
    its = to_keras(graph, weights)(inputs if len(inputs) > 1 else inputs[0], training=False)
    with torch.no_grad():
        mine = to_torch(graph, weights).eval().flat(*map(torch.from_numpy, inputs))
    for one, two in zip(mine, its if isinstance(its, (list, tuple)) else [its], strict=True):
        scale = max(float(one.abs().max()), 1.0)
        np.testing.assert_allclose(one.numpy() / scale, np.asarray(two) / scale, atol=1e-5)
