"""Networks from PyTorch modules: they compute what the module computes, and what they cannot is
told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.layers.imports.test_from_onnx import all_layers, batch_for
from tests.layers.test_random_graphs import graphs

from nnpipe import layers as nn
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.imports.from_torch import from_torch
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.torch.to_torch import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional
T = torch.nn

IMAGE, LINE, VOLUME, ROW = (3, 4, 9, 8), (3, 4, 9), (2, 3, 5, 6, 4), (3, 6)
MODULES: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
    (lambda: T.Conv2d(4, 6, 3, (2, 1), (1, 2)), IMAGE),
    (lambda: T.Conv2d(4, 6, (3, 2), padding="same", dilation=2), IMAGE),
    (lambda: T.Conv2d(4, 8, 3, groups=4, bias=False), IMAGE),
    (lambda: T.Conv2d(4, 6, 1, groups=2), IMAGE),
    (lambda: T.Conv1d(4, 5, 3, 2), LINE),
    (lambda: T.Conv3d(3, 2, (2, 3, 2), padding=1), VOLUME),
    (lambda: T.ConvTranspose2d(4, 5, 3, (2, 3), 1, output_padding=(1, 2)), IMAGE),
    (lambda: T.ConvTranspose1d(4, 5, 2, 3), LINE),
    (lambda: T.Linear(6, 4), ROW),
    (lambda: T.Linear(9, 4, bias=False), LINE),
    (lambda: T.BatchNorm2d(4), IMAGE),
    (lambda: T.BatchNorm1d(6, affine=False), ROW),
    (lambda: T.LayerNorm(8), IMAGE),
    (lambda: T.LayerNorm((9, 8), bias=False), IMAGE),
    (lambda: T.GroupNorm(2, 4), IMAGE),
    (lambda: T.InstanceNorm2d(4, affine=True), IMAGE),
    (lambda: T.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGE),
    (lambda: T.MaxPool2d(2), IMAGE),
    (lambda: T.MaxPool2d(3, 2, 1), IMAGE),
    (lambda: T.MaxPool2d(3, 2, ceil_mode=True), IMAGE),
    (lambda: T.MaxPool1d(2, 1), LINE),
    (lambda: T.Sequential(T.ReLU(), T.MaxPool2d(3, 2, 1)), IMAGE),
    (lambda: T.Sequential(T.ReLU(), T.MaxPool2d(3, 2, ceil_mode=True)), IMAGE),
    (lambda: T.AvgPool2d(2, padding=1), IMAGE),
    (lambda: T.AvgPool2d(3, 1, 1, count_include_pad=False), IMAGE),
    (lambda: T.AvgPool3d(2), VOLUME),
    (lambda: T.AdaptiveAvgPool2d(1), IMAGE),
    (lambda: T.AdaptiveAvgPool2d((3, 4)), IMAGE),
    (lambda: T.AdaptiveMaxPool1d(1), LINE),
    (lambda: T.ReLU(inplace=True), IMAGE),
    (lambda: T.ReLU6(), ROW),
    (lambda: T.LeakyReLU(0.2), ROW),
    (lambda: T.ELU(0.5), ROW),
    (lambda: T.SELU(), ROW),
    (lambda: T.GELU(), ROW),
    (lambda: T.SiLU(), ROW),
    (lambda: T.Mish(), ROW),
    (lambda: T.Softplus(), ROW),
    (lambda: T.Hardsigmoid(), ROW),
    (lambda: T.Hardswish(), ROW),
    (lambda: T.Hardtanh(), ROW),
    (lambda: T.LogSigmoid(), ROW),
    (lambda: T.PReLU(4, 0.3), IMAGE),
    (lambda: T.PReLU(init=0.1), ROW),
    (lambda: T.Softmax(1), IMAGE),
    (lambda: T.LogSoftmax(-1), ROW),
    (lambda: T.Dropout(0.3), ROW),
    (lambda: T.Dropout2d(0.3), IMAGE),
    (lambda: T.Flatten(), IMAGE),
    (lambda: T.Unflatten(1, (2, 3)), ROW),
    (lambda: T.ZeroPad2d((1, 0, 2, 3)), IMAGE),
    (lambda: T.Upsample(scale_factor=2), IMAGE),
    (lambda: T.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    (
        lambda: T.Sequential(
            T.Conv2d(4, 3, 3), T.BatchNorm2d(3), T.ReLU(), T.Flatten(), T.Linear(126, 5)
        ),
        IMAGE,
    ),
    (lambda: Called(lambda x: x.transpose(1, 3) * 2 - 1), IMAGE),
    (lambda: Called(lambda x: torch.cat([x, x.relu()], 1).mean((2, 3))), IMAGE),
    (lambda: Called(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)), IMAGE),
    (lambda: Called(lambda x: x[:, 1:3, ::2, -4:]), IMAGE),
    (lambda: Called(lambda x: x[:, :, -1].reshape(len(x), 2, -1).movedim(1, 2)), LINE),
    (lambda: Called(lambda x: torch.maximum(x, 1 - x).amax((2,), keepdim=True)), LINE),
    (lambda: Called(lambda x: F.pad(x, (0, 0, 0, 0, 2, 1)).sigmoid()), IMAGE),
    (lambda: Called(lambda x: x.repeat_interleave(3, 2)), IMAGE),
    (lambda: Called(lambda x: x * x.mean((2, 3), keepdim=True).sigmoid()), IMAGE),
]


class Called(T.Module):  # type: ignore[misc]
    """A function as a module; so nobody sees whose module is inside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Wrapped(T.Module):  # type: ignore[misc]
    """A network that hides whose it is."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *xs: Any) -> Any:
        return self.inner(*xs)


def computed(reading: Reading, inputs: list[Any]) -> tuple[Any, ...]:
    assert reading.graph is not None
    with torch.no_grad():
        found: tuple[Any, ...] = to_torch(reading.graph, reading.weights).eval().flat(*inputs)
    return found


def unsettled(module: Any) -> Any:
    """Return means, variances and the like values of their own."""
    torch.manual_seed(1)
    for name, buffer in module.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2)
    for parameter in module.parameters():
        parameter.data.uniform_(-1, 1)
    return module


@pytest.mark.parametrize(("make", "shape"), MODULES)
def test_a_module_is_read_and_computes_the_same(
    make: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    module = unsettled(make()).train()
    x = torch.from_numpy(np.random.default_rng(3).normal(size=shape).astype(np.float32))
    reading = from_torch(module, [x])
    assert module.training
    assert reading.problems == ()
    module.eval()
    for batch in (x, x[:1], torch.cat([x, x])):  # with any number of samples
        with torch.no_grad():
            expected = module(batch.clone())
        (found,) = computed(reading, [batch])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_an_embedding_and_several_inputs_are_read() -> None:
    class Two(T.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = T.Embedding(9, 4), T.Linear(7, 2)

        def forward(self, word: Any, numbers: Any) -> Any:
            found = torch.cat([self.words(word), numbers], -1)
            return self.out(found), found

    module = Two()
    inputs = [torch.tensor([3, 8, 0]), torch.randn(3, 3)]
    reading = from_torch(module, inputs)
    assert reading.problems == ()
    assert reading.graph is not None
    assert [ref.layer for ref in reading.graph.inputs] == ["word", "numbers"]
    assert set(reading.weights) == {"words/embeddings", "out/kernel", "out/bias"}
    for found, expected in zip(computed(reading, inputs), module(*inputs), strict=True):
        torch.testing.assert_close(found, expected)


CELLS = [
    (kind, more, batch_first)
    for kind in ("LSTM", "GRU", "RNN")
    for more in ({}, {"bias": False}, {"bidirectional": True}, {"num_layers": 2})
    for batch_first in (True, False)
]
# The kind, the options and the order of the axes are read independently of each other.
QUICK_CELLS = [
    ("LSTM", {}, False),
    ("GRU", {}, True),
    ("RNN", {"num_layers": 2}, True),
    ("LSTM", {"bidirectional": True}, True),
    ("GRU", {"bias": False}, True),
    ("RNN", {}, True),
]


@pytest.mark.parametrize(
    ("kind", "more", "batch_first"),
    [pytest.param(*cell, marks=[pytest.mark.slow] * (cell not in QUICK_CELLS)) for cell in CELLS],
)
def test_recurrent_layers_are_read(kind: str, more: dict[str, Any], batch_first: bool) -> None:
    class Net(T.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(T, kind)(4, 3, batch_first=batch_first, **more)

        def forward(self, x: Any) -> Any:
            found, state = self.cells(x if batch_first else x.transpose(0, 1))
            state = state[0] if kind == "LSTM" else state
            found = found if batch_first else found.transpose(0, 1)
            return found if "bidirectional" in more else (found, state.transpose(0, 1))

    module, x = Net().eval(), torch.randn(2, 5, 4)
    reading = from_torch(module, [x])
    assert reading.problems == ()
    assert reading.graph is not None
    with torch.no_grad():
        expected = module(torch.cat([x, x]))
    for found, wanted in zip(
        computed(reading, [torch.cat([x, x])]),
        expected if isinstance(expected, tuple) else [expected],
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    kinds = [type(layer).__name__ for layer in reading.graph.layers.values()]
    wanted = {"RNN": "SimpleRNN"}.get(kind, kind)
    assert kinds[1] == ("Bidirectional" if "bidirectional" in more else wanted)


def test_layers_bear_the_names_of_modules_and_go_to_keras_too() -> None:
    from nnpipe.layers.keras.to_keras import to_keras

    module = T.Sequential(
        T.Conv2d(3, 4, 3, padding=1), T.ReLU(), T.MaxPool2d(2), T.Flatten(), T.Linear(64, 5)
    ).eval()
    x = torch.randn(2, 3, 8, 8)
    reading = from_torch(module, [x])
    assert reading.graph is not None
    assert set(reading.weights) == {"0/kernel", "0/bias", "4/kernel", "4/bias"}
    # The rows of the dense layer follow the places of the image, so that nothing is moved before
    # it.
    kinds = [type(entry.layer).__name__ for entry in reading.graph.entries]
    assert kinds == ["Input", "Permute", "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Dense"]
    its = np.asarray(to_keras(reading.graph, reading.weights)(x.numpy(), training=False))
    np.testing.assert_allclose(its, module(x).detach().numpy(), atol=1e-5)


# What these layers are in PyTorch is arithmetic that no single layer does.
WITHOUT = (nn.LayerNorm, nn.PReLU, nn.Bidirectional, nn.AvgPool2d)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(names=False))
def test_any_network_that_was_built_is_read_again(graph: nn.NetworkGraph) -> None:
    weights = initial_weights(graph)
    module = to_torch(graph, weights)
    inputs = [torch.from_numpy(value) for value in batch_for(graph).values()]
    # Its own module knows what it was made of.
    reading = from_torch(module, inputs)
    assert reading.graph == graph
    assert reading.problems == ()
    assert reading.weights.keys() == weights.keys()
    # Any other is followed.
    assume(not any(isinstance(layer, WITHOUT) for layer in all_layers(graph)))
    reading = from_torch(Wrapped(module), inputs)
    assert reading.problems == ()
    with torch.no_grad():
        expected = module.eval().flat(*inputs)
    for found, wanted in zip(computed(reading, inputs), expected, strict=True):
        scale = max(float(wanted.abs().max()), 1.0)
        torch.testing.assert_close(found / scale, wanted / scale, rtol=1e-5, atol=1e-5)


def test_a_published_network_is_read(shared_data: Path) -> None:
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet

    model = PyTorchCIFARResNet().open(
        shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
    )
    module, images = model.native.eval(), torch.rand(4, 3, 32, 32)
    reading = from_torch(module, [images])
    assert reading.problems == ()
    with torch.no_grad():
        expected = module(images)
    (found,) = computed(reading, [images])
    torch.testing.assert_close(
        found / expected.abs().max(), expected / expected.abs().max(), rtol=0, atol=1e-5
    )


@pytest.mark.slow
def test_networks_of_a_public_project_go_through_pytorch_and_back(shared_data: Path) -> None:
    right = []
    for path in sorted((shared_data / "keras_files").rglob("*.h5")):
        source = read_keras(path)
        if source.graph is None or {problem.code for problem in source.problems} - {
            "changed-meaning"
        }:
            continue
        module = to_torch(source.graph, source.weights).eval()
        layers: dict[str, Any] = source.graph.layers  # type: ignore[assignment]
        inputs = [
            torch.randn(2, *(e or 7 for e in layers[ref.layer].shape))
            for ref in source.graph.inputs
        ]
        reading = from_torch(Wrapped(module), inputs)
        assert reading.problems == (), path.name
        with torch.no_grad():
            expected = module.flat(*inputs)
        for found, wanted in zip(computed(reading, inputs), expected, strict=True):
            scale = max(float(wanted.abs().max()), 1.0)
            torch.testing.assert_close(found / scale, wanted / scale, rtol=0, atol=1e-5)
        right.append(path.name)
    assert len(right) >= 20


def test_what_no_layer_does_is_kept_and_told() -> None:
    class Odd(T.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.odd, self.last = (
                T.Linear(4, 4),
                Called(lambda x: x.cumsum(1)),
                T.Linear(4, 2),
            )

        def forward(self, x: Any) -> Any:
            return self.last(self.odd(self.first(x)))

    reading = from_torch(Odd(), [torch.randn(2, 5, 4)])
    assert [(problem.code, problem.path) for problem in reading.problems] == [
        ("unknown-layer", "odd"),
        ("shape", "last"),
    ]
    assert reading.graph is not None
    kept = reading.graph.layers["odd"]
    assert isinstance(kept, nn.Unknown)
    assert (kept.class_name, kept.raw.value["config"]) == ("aten::cumsum", {"dim": 1})
    assert isinstance(reading.graph.layers["first"], nn.Dense)
    # What follows is kept with its weights, too.
    assert reading.weights["last/last.weight"].shape == (2, 4)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: T.AvgPool2d(2, divisor_override=3), ".divisor_override"),
        # of 4 values 8, but not two for each
        (lambda: T.Upsample(scale_factor=2.2, mode="bilinear"), ".scales"),
        (lambda: T.Upsample(scale_factor=2.2), ".scales"),
        (lambda: T.Softplus(threshold=1), ""),
        (lambda: Called(lambda x: F.dropout(x, 0.5, training=True)), ""),
        (lambda: Called(lambda x: F.alpha_dropout(x, 0.5, training=True)), ""),
        (lambda: Called(lambda x: torch.sub(x, 1, alpha=2)), ""),
        (lambda: Called(lambda x: x.clamp(torch.zeros(()), torch.ones(()))), ""),
    ],
)
def test_arguments_that_no_layer_has_are_told(make: Callable[[], Any], place: str) -> None:
    reading = from_torch(make(), [torch.randn(2, 3, 4, 4)])
    assert reading.graph is not None
    problem = reading.problems[-1]
    assert problem.path.endswith(place)
    assert problem.code in ("unknown-argument", "unknown-layer")


def test_an_input_without_samples_is_a_problem() -> None:
    reading = from_torch(Called(lambda x: x + 1), [torch.tensor(1.0)])
    assert [(problem.code, problem.path) for problem in reading.problems] == [
        ("no-input-shape", "x")
    ]


def test_a_module_that_cannot_be_followed_is_a_problem() -> None:
    def choosing(x: Any) -> Any:
        return x + 1 if float(x.sum()) > 0 else x - 1

    reading = from_torch(Called(choosing), [torch.ones(2, 3)])
    assert reading.graph is None
    assert [problem.code for problem in reading.problems] == ["structure"]
