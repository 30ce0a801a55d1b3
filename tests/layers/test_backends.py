"""Every layer of the vocabulary in every backend: one graph, one set of weights, one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from installed import needs

from nnpipe import layers as nn
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.initialisers import RandomNormal, RandomUniform
from nnpipe.testing.layer import LayerContract

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("keras", "tensorflow")

Make = Callable[..., Any]
N = RandomNormal(stddev=0.4, seed=3)  # biases that are zero would hide where they go
P = RandomUniform(0.5, 1.5, seed=4)
NORM = {"beta_initializer": N, "gamma_initializer": P}
MOVING = {"moving_mean_initializer": N, "moving_variance_initializer": P}
B = {"bias_initializer": N}
INNER_INPUT = nn.Input((4,), name="inner_in")
INNER = nn.network(
    INNER_INPUT,
    nn.BatchNorm(nn.Dense(INNER_INPUT, 3, name="d", **B), name="n", **NORM, **MOVING),
    "in",
)


def first_last(
    cls: Make, *args: Any, rank: int, **kwargs: Any
) -> list[tuple[Make, list[tuple[int, ...]]]]:
    shape = (5, 7, 6)[:rank]
    return [(lambda x: cls(x, *args, **kwargs), [(*shape, 3)])]


# For each class: ways to declare it, and the shapes of the inputs (letters are made integers below
# 9).
EXAMPLES: dict[type[nn.Layer], list[tuple[Make, Sequence[tuple[int, ...]]]]] = {
    nn.Dense: [
        (lambda x: nn.Dense(x, 4, **B), [(3,)]),
        (lambda x: nn.Dense(x, 4, "softmax", **B), [(5, 3)]),
        (lambda x: nn.Dense(x, 2, use_bias=False, kernel_initializer="he_normal"), [(3,)]),
    ],
    nn.Embedding: [(lambda x: nn.Embedding(x, 9, 4), [(6,)])],
    nn.Conv1d: [
        (lambda x: nn.Conv1d(x, 4, 3, padding="causal", dilation_rate=2, **B), [(9, 3)]),
        (lambda x: nn.Conv1d(x, 4, 3, 2, "same", activation="relu", **B), [(8, 3)]),
    ],
    nn.Conv2d: [
        (lambda x: nn.Conv2d(x, 4, (3, 2), 2, "same", activation="gelu", **B), [(6, 7, 3)]),
        (lambda x: nn.Conv2d(x, 4, 3, groups=2, dilation_rate=(1, 2), **B), [(6, 8, 4)]),
        (lambda x: nn.Conv2d(x, 4, 1, activation="softmax", use_bias=False), [(6, 8, 4)]),
    ],
    nn.Conv3d: [(lambda x: nn.Conv3d(x, 2, (3, 2, 3), (1, 2, 2), "same", **B), [(5, 6, 7, 3)])],
    nn.Conv1dTranspose: [
        (lambda x: nn.Conv1dTranspose(x, 4, 3, 2, "same", **B), [(5, 3)]),
        (lambda x: nn.Conv1dTranspose(x, 4, 2, 3, **B), [(5, 3)]),
    ],
    nn.Conv2dTranspose: [
        (lambda x: nn.Conv2dTranspose(x, 4, 3, 2, "same", activation="relu", **B), [(5, 4, 3)]),
        (lambda x: nn.Conv2dTranspose(x, 4, (4, 3), (2, 3), "valid", **B), [(5, 4, 3)]),
        (lambda x: nn.Conv2dTranspose(x, 4, 3, 2, "same", output_padding=1, **B), [(5, 4, 3)]),
        (lambda x: nn.Conv2dTranspose(x, 4, 2, 3, "same", use_bias=False), [(5, 4, 3)]),
    ],
    nn.Conv3dTranspose: [(lambda x: nn.Conv3dTranspose(x, 2, 3, 2, "same", **B), [(3, 4, 2, 3)])],
    nn.DepthwiseConv1d: [
        (lambda x: nn.DepthwiseConv1d(x, 3, padding="same", depth_multiplier=2, **B), [(7, 3)])
    ],
    nn.DepthwiseConv2d: [
        (
            lambda x: nn.DepthwiseConv2d(
                x, 3, 2, "same", depth_multiplier=2, activation="relu6", **B
            ),
            [(6, 7, 3)],
        ),
        (lambda x: nn.DepthwiseConv2d(x, (2, 3), dilation_rate=2, **B), [(6, 7, 3)]),
    ],
    nn.SeparableConv1d: [
        (lambda x: nn.SeparableConv1d(x, 4, 3, padding="same", depth_multiplier=2, **B), [(7, 3)])
    ],
    nn.SeparableConv2d: [(lambda x: nn.SeparableConv2d(x, 4, 3, 2, "same", **B), [(6, 7, 3)])],
    **{
        cls: [
            (lambda x, cls=cls: cls(x), [(*(5, 6, 7)[: cls.rank], 3)]),
            (lambda x, cls=cls: cls(x, 3, 2, "same"), [(*(5, 6, 7)[: cls.rank], 3)]),
        ]
        for cls in (
            nn.MaxPool1d,
            nn.MaxPool2d,
            nn.MaxPool3d,
            nn.AvgPool1d,
            nn.AvgPool2d,
            nn.AvgPool3d,
        )
    },
    **{
        cls: [
            (lambda x, cls=cls: cls(x), [(*(5, 6, 7)[: cls.rank], 3)]),
            (lambda x, cls=cls: cls(x, keepdims=True), [(*(5, 6, 7)[: cls.rank], 3)]),
        ]
        for cls in (
            nn.GlobalMaxPool1d,
            nn.GlobalMaxPool2d,
            nn.GlobalMaxPool3d,
            nn.GlobalAvgPool1d,
            nn.GlobalAvgPool2d,
            nn.GlobalAvgPool3d,
        )
    },
    nn.BatchNorm: [
        (lambda x: nn.BatchNorm(x, **NORM, **MOVING), [(6, 5, 3)]),
        (
            lambda x: nn.BatchNorm(
                x, axis=1, scale=False, epsilon=0.01, **MOVING, beta_initializer=N
            ),
            [(4,)],
        ),
        (lambda x: nn.BatchNorm(x, center=False, **MOVING, gamma_initializer=P), [(5, 3)]),
    ],
    nn.LayerNorm: [
        (lambda x: nn.LayerNorm(x, **NORM), [(5, 6)]),
        (lambda x: nn.LayerNorm(x, axis=(1, 2), center=False, gamma_initializer=P), [(5, 6)]),
    ],
    nn.GroupNorm: [
        (lambda x: nn.GroupNorm(x, 2, **NORM), [(5, 6, 4)]),
        (lambda x: nn.GroupNorm(x, -1, scale=False, beta_initializer=N), [(5, 4)]),
    ],
    nn.UnitNorm: [
        (lambda x: nn.UnitNorm(x), [(5, 4)]),
        (lambda x: nn.UnitNorm(x, (1, 2)), [(5, 4)]),
    ],
    nn.RMSNorm: [(lambda x: nn.RMSNorm(x), [(5, 4)])],
    nn.Dropout: [
        (lambda x: nn.Dropout(x, 0.5), [(5,)]),
        (lambda x: nn.Dropout(x, 0.5, (None, 1)), [(5,)]),
    ],
    nn.AlphaDropout: [(lambda x: nn.AlphaDropout(x, 0.5), [(5,)])],
    nn.GaussianDropout: [(lambda x: nn.GaussianDropout(x, 0.5), [(5,)])],
    nn.GaussianNoise: [(lambda x: nn.GaussianNoise(x, 0.5), [(5,)])],
    nn.SpatialDropout1d: [(lambda x: nn.SpatialDropout1d(x, 0.5), [(5, 3)])],
    nn.SpatialDropout2d: [(lambda x: nn.SpatialDropout2d(x, 0.5), [(5, 4, 3)])],
    nn.SpatialDropout3d: [(lambda x: nn.SpatialDropout3d(x, 0.5), [(5, 4, 2, 3)])],
    nn.Activation: [(lambda x: nn.Activation(x, "tanh"), [(5,)])],
    nn.ReLU: [
        (lambda x: nn.ReLU(x), [(5,)]),
        (lambda x: nn.ReLU(x, 1.0, 0.1, 0.2), [(50,)]),
        (lambda x: nn.ReLU(x, max_value=0.5), [(50,)]),
    ],
    nn.LeakyReLU: [(lambda x: nn.LeakyReLU(x, 0.2), [(5,)])],
    nn.PReLU: [
        (lambda x: nn.PReLU(x, N), [(5, 3)]),
        (lambda x: nn.PReLU(x, N, shared_axes=(1,)), [(5, 3)]),
    ],
    nn.ELU: [(lambda x: nn.ELU(x, 0.7), [(5,)])],
    nn.Softmax: [(lambda x: nn.Softmax(x), [(5, 3)]), (lambda x: nn.Softmax(x, (1, 2)), [(5, 3)])],
    nn.SimpleRNN: [(lambda x: nn.SimpleRNN(x, 4, **B), [(5, 3)])],
    nn.LSTM: [
        (lambda x: nn.LSTM(x, 4, **B), [(5, 3)]),
        (
            lambda x: nn.LSTM(x, 4, return_sequences=True, go_backwards=True, use_bias=False),
            [(5, 3)],
        ),
        (lambda x: nn.LSTM(x, 4, return_state=True, **B)[2], [(5, 3)]),
        (lambda x, h, c: nn.LSTM([x, h, c], 4, **B), [(5, 3), (4,), (4,)]),
    ],
    nn.GRU: [
        (lambda x: nn.GRU(x, 4, return_sequences=True, **B), [(5, 3)]),
        (lambda x: nn.GRU(x, 4, reset_after=False, activation="relu", **B), [(5, 3)]),
        (lambda x: nn.GRU(x, 4, use_bias=False), [(5, 3)]),
    ],
    nn.Bidirectional: [
        (lambda x: nn.Bidirectional(x, nn.LSTM((), 4, return_sequences=True, **B)), [(5, 3)]),
        (lambda x: nn.Bidirectional(x, nn.GRU((), 4, **B), "ave"), [(5, 3)]),
        (
            lambda x: nn.Subtract([(b := nn.Bidirectional(x, nn.GRU((), 4, **B), None))[0], b[1]]),
            [(5, 3)],
        ),
        (
            lambda x: nn.Bidirectional(
                x, nn.LSTM((), 4, **B), backward_layer=nn.GRU((), 4, go_backwards=True)
            ),
            [(5, 3)],
        ),
    ],
    nn.TimeDistributed: [
        (lambda x: nn.TimeDistributed(x, nn.Dense((), 4, **B)), [(5, 3)]),
        (lambda x: nn.TimeDistributed(x, nn.Conv2d((), 4, 3, **B)), [(2, 5, 6, 3)]),
    ],
    nn.MultiHeadAttention: [
        (lambda q, v: nn.MultiHeadAttention([q, v], 2, 3, **B), [(5, 4), (6, 3)]),
        (
            lambda q, v, k: nn.MultiHeadAttention([q, v, k], 2, 3, 5, output_shape=7, **B),
            [(5, 4), (6, 3), (6, 2)],
        ),
    ],
    nn.Attention: [
        (lambda q, v: nn.Attention([q, v], True), [(5, 4), (6, 4)]),
        (lambda q, v, k: nn.Attention([q, v, k], score_mode="concat"), [(5, 4), (6, 3), (6, 4)]),
    ],
    nn.AdditiveAttention: [
        (lambda q, v: nn.AdditiveAttention([q, v]), [(5, 4), (6, 4)]),
        (lambda q, v: nn.AdditiveAttention([q, v], False), [(5, 4), (6, 4)]),
    ],
    nn.Add: [
        (lambda a, b: nn.Add([a, b]), [(5, 1, 3), (4, 3)]),
        (lambda a, b, c: nn.Add([a, b, c]), [(3,)] * 3),
    ],
    nn.Subtract: [(lambda a, b: nn.Subtract([a, b]), [(4, 3), (4, 3)])],
    nn.Multiply: [(lambda a, b: nn.Multiply([a, b]), [(4, 3), (1, 3)])],
    nn.Average: [(lambda a, b, c: nn.Average([a, b, c]), [(4, 3)] * 3)],
    nn.Maximum: [(lambda a, b: nn.Maximum([a, b]), [(4, 3)] * 2)],
    nn.Minimum: [(lambda a, b: nn.Minimum([a, b]), [(4, 3)] * 2)],
    nn.Concatenate: [
        (lambda a, b: nn.Concatenate([a, b]), [(4, 3), (4, 2)]),
        (lambda a, b: nn.Concatenate([a, b], axis=1), [(4, 3), (2, 3)]),
    ],
    nn.Dot: [
        (lambda a, b: nn.Dot([a, b], 1), [(4,), (4,)]),
        (lambda a, b: nn.Dot([a, b], (2, 1), normalize=True), [(5, 4), (4, 3)]),
    ],
    nn.Reshape: [
        (lambda x: nn.Reshape(x, (2, -1)), [(3, 4)]),
        (lambda x: nn.Reshape(x, 12), [(3, 4)]),
    ],
    nn.Flatten: [(lambda x: nn.Flatten(x), [(3, 4)])],
    nn.Permute: [(lambda x: nn.Permute(x, (2, 1)), [(3, 4)])],
    nn.RepeatVector: [(lambda x: nn.RepeatVector(x, 3), [(4,)])],
    nn.Identity: [(lambda x: nn.Identity(x), [(4,)])],
    nn.Rescaling: [
        (lambda x: nn.Rescaling(x, 1 / 255), [(4,)]),
        (lambda x: nn.Rescaling(x, (1, 2, 3), (0.5, 0, 1)), [(4, 3)]),
    ],
    nn.ActivityRegularization: [(lambda x: nn.ActivityRegularization(x, 0.1, 0.2), [(4,)])],
    nn.ZeroPad1d: [(lambda x: nn.ZeroPad1d(x, (1, 2)), [(5, 3)])],
    nn.ZeroPad2d: [
        (lambda x: nn.ZeroPad2d(x, ((1, 2), (0, 3))), [(5, 6, 3)]),
        (lambda x: nn.ZeroPad2d(x), [(5, 6, 3)]),
    ],
    nn.ZeroPad3d: [(lambda x: nn.ZeroPad3d(x, (1, 2, 0)), [(5, 6, 4, 3)])],
    nn.Crop1d: [(lambda x: nn.Crop1d(x, (1, 2)), [(5, 3)])],
    nn.Crop2d: [(lambda x: nn.Crop2d(x, ((1, 2), (0, 3))), [(5, 6, 3)])],
    nn.Crop3d: [(lambda x: nn.Crop3d(x), [(5, 6, 4, 3)])],
    nn.UpSample1d: [(lambda x: nn.UpSample1d(x, 3), [(5, 3)])],
    nn.UpSample2d: [
        (lambda x: nn.UpSample2d(x, (2, 3)), [(5, 6, 3)]),
        (lambda x: nn.UpSample2d(x, 2, interpolation="bilinear"), [(5, 6, 3)]),
    ],
    nn.UpSample3d: [(lambda x: nn.UpSample3d(x), [(3, 2, 4, 3)])],
    nn.OutputClassification: [
        (lambda x: nn.OutputClassification(x, "label"), [(4,)]),
        (
            lambda x: nn.OutputClassification(x, "label", 0.1, (2, 3), weights="w", scale=0.5),
            [(4,)],
        ),
    ],
    nn.OutputClassificationBinary: [
        (lambda x: nn.OutputClassificationBinary(x, "truth", 2.0), [(4,)])
    ],
    nn.OutputRegression: [(lambda x: nn.OutputRegression(x, "truth", "huber"), [(4, 3)])],
    nn.OutputSegmentation: [(lambda x: nn.OutputSegmentation(x, "mask", "dice", 255), [(5, 4, 3)])],
    nn.OutputEmbedding: [
        (lambda x: nn.OutputEmbedding(x), [(4,)]),
        (lambda x: nn.OutputEmbedding(x, "label"), [(4,)]),
    ],
    nn.OutputTriplets: [(lambda x: nn.OutputTriplets(x, margin=0.3), [(3, 4)])],
    nn.Submodel: [
        (lambda x: nn.Submodel(x, INNER), [(4,)]),
        (
            lambda x: nn.Submodel(
                nn.Submodel(x, INNER, name="one")[0],
                nn.network((i := nn.Input((3,), name="i")), [i, nn.Dense(i, 2, name="d")], "two"),
                name="two",
            )[1],
            [(4,)],
        ),
    ],
}
APART = {
    nn.Input: "an end, part of every example",
    nn.Unknown: "has no meaning; see test_from_keras",
}

CASES = [
    pytest.param(cls, make, shapes, id=f"{cls.__name__}-{number}")
    for cls, examples in EXAMPLES.items()
    for number, (make, shapes) in enumerate(examples)
]


def declared(cls: type[nn.Layer], make: Make, shapes: Sequence[tuple[int, ...]]) -> nn.NetworkGraph:
    dtype = "int32" if cls is nn.Embedding else "float32"
    inputs = [nn.Input(shape, name=f"in{i}", dtype=dtype) for i, shape in enumerate(shapes)]
    return nn.network(inputs, make(*inputs), "example")


class TestEveryLayer(LayerContract):
    @pytest.fixture(
        params=[pytest.param(case.values, id=case.id, marks=case.marks) for case in CASES]
    )
    def case(
        self, request: pytest.FixtureRequest
    ) -> tuple[type[nn.Layer], Make, Sequence[tuple[int, ...]]]:
        return request.param

    @pytest.fixture
    def graph(
        self, case: tuple[type[nn.Layer], Make, Sequence[tuple[int, ...]]]
    ) -> nn.NetworkGraph:
        return declared(*case)

    @pytest.fixture
    def layer(
        self, case: tuple[type[nn.Layer], Make, Sequence[tuple[int, ...]]], graph: nn.NetworkGraph
    ) -> nn.Layer:
        return next(layer for layer in graph.layers.values() if type(layer) is case[0]).alone()


def test_no_layer_is_forgotten() -> None:
    own = {
        cls
        for cls in nn.list_layer_classes()
        if cls.__module__.startswith("nnpipe.layers.") and "<" not in cls.__qualname__
    }
    assert set(EXAMPLES) | set(APART) == own
    assert len(own) > 75
    public = {getattr(nn, name) for name in nn.__all__}
    assert own <= public


def test_a_small_network_is_exported_with_a_free_number_of_samples() -> None:
    x = nn.Input((12, 12, 1))
    y = nn.MaxPool2d(nn.BatchNorm(nn.Conv2d(x, 4, 5, padding="same", activation="relu")), 2)
    y = nn.AvgPool2d(
        nn.DepthwiseConv2d(nn.Dropout(y, 0.2), 3, 2, padding="same"), 2, padding="same"
    )
    module = to_torch(nn.network(x, nn.Dense(nn.Flatten(y), 10))).eval()
    free = torch.export.Dim("samples", min=1, max=64)
    program = torch.export.export(
        module, (torch.randn(2, 12, 12, 1),), dynamic_shapes=(({0: free},),)
    )
    batch = torch.randn(5, 12, 12, 1)
    torch.testing.assert_close(program.module()(batch), module(batch))
