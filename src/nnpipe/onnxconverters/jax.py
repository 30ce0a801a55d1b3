"""ONNX conversion with JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch
from nnpipe.onnxconverters._samples import make_random_inputs


class JAXONNXConversion(ONNXConversion):
    """Exports JAX functions with jax2onnx and imports with jaxonnxruntime."""

    framework: ClassVar[str] = "JAX"
    requires: ClassVar[tuple[str, ...]] = ("jax", "jax2onnx", "onnx")
    install: ClassVar[str] = "nnpipe[jax]"

    def models(self) -> Iterator[ConversionCase]:
        """Yield dense, convolutional, residual, recurrent and attention networks, written in
        plain JAX.
        """
        for name, (build, shapes) in _MODELS.items():
            yield ConversionCase(name, build(_Weights()), make_random_inputs(shapes))

    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run a model and return its outputs."""
        found = model(*inputs.values())
        return [
            np.asarray(array) for array in (found if isinstance(found, (list, tuple)) else (found,))
        ]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Export a model with a free batch size."""
        from jax2onnx import to_onnx

        shapes = [("batch", *array.shape[1:]) for array in case.inputs.values()]
        found = to_onnx(case.model, shapes, opset=opset, input_names=list(case.inputs))
        write_bytes(path, found.SerializeToString())

    def import_model(self, path: Path) -> Any:
        """Return a file's model, imported with jaxonnxruntime."""
        try:
            from jaxonnxruntime.call_onnx import call_onnx_model
        except ImportError as error:
            raise NotSupported(
                f"JAX reads ONNX with jaxonnxruntime, which is not installed: {error}"
            ) from None
        import onnx

        model = onnx.load_model(str(path))
        names = [value.name for value in model.graph.input]

        def call(*arrays: Any) -> Any:
            # It infers shapes from real inputs, so nothing can be prepared.
            function, weights = call_onnx_model(model, dict(zip(names, arrays, strict=True)))
            return function(weights, list(arrays))

        return call


class _Weights:
    """Draws small weights from the same seed for every model."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def __call__(self, *shape: int) -> np.ndarray:
        drawn = self._random.standard_normal(shape, np.float32)
        scaled: np.ndarray = drawn / np.float32(np.sqrt(np.prod(shape[:-1])))
        return scaled


def _build_mlp(weights: _Weights) -> Callable[..., Any]:
    import jax

    first, bias, second = weights(12, 24), weights(24), weights(24, 5)
    return lambda x: jax.nn.softmax(jax.nn.relu(x @ first + bias) @ second)


def _convolve(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    import jax

    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _build_cnn(weights: _Weights) -> Callable[..., Any]:
    import jax

    first, second, last = weights(3, 3, 3, 8), weights(3, 3, 8, 16), weights(16, 5)

    def apply(x: Any) -> Any:
        x = jax.nn.relu(_convolve(x, first))
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.nn.gelu(_convolve(x, second, 2)).mean((1, 2)) @ last

    return apply


def _build_resnet(weights: _Weights) -> Callable[..., Any]:
    import jax

    stem, one, two = weights(3, 3, 3, 8), weights(3, 3, 8, 8), weights(3, 3, 8, 8)
    wide, around, last = weights(3, 3, 8, 16), weights(1, 1, 8, 16), weights(16, 5)

    def apply(x: Any) -> Any:
        x = jax.nn.relu(_convolve(x, stem))
        x = jax.nn.relu(x + _convolve(jax.nn.relu(_convolve(x, one)), two))
        x = jax.nn.relu(_convolve(x, wide, 2) + _convolve(x, around, 2))
        return x.mean((1, 2)) @ last

    return apply


def _build_mobilenet(weights: _Weights) -> Callable[..., Any]:
    import jax

    stem, wide, depth, narrow = (
        weights(3, 3, 3, 8),
        weights(1, 1, 8, 32),
        weights(3, 3, 1, 32),
        weights(1, 1, 32, 8),
    )
    last = weights(8, 5)

    def apply(x: Any) -> Any:
        x = jax.nn.relu6(_convolve(x, stem, 2))
        inner = jax.nn.relu6(_convolve(jax.nn.relu6(_convolve(x, wide)), depth, groups=32))
        return (x + _convolve(inner, narrow)).mean((1, 2)) @ last

    return apply


def _build_lstm(weights: _Weights) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    given, kept, last = weights(8, 40), weights(10, 40), weights(10, 5)

    def run_step(state: Any, x: Any) -> Any:
        cell, hidden = state
        enter, forget, candidate, leave = jnp.split(x @ given + hidden @ kept, 4, axis=1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (cell, hidden), hidden

    def apply(x: Any) -> Any:
        none = jnp.zeros((x.shape[0], 10), x.dtype)
        (_, hidden), _ = jax.lax.scan(run_step, (none, none), jnp.swapaxes(x, 0, 1))
        return hidden @ last

    return apply


def _build_attention(weights: _Weights) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    queries, keys, values = (weights(8, 8) for _ in range(3))

    def apply(x: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", x @ queries, x @ keys) / np.float32(np.sqrt(8))
        return x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x @ values)

    return apply


def _build_two_inputs(weights: _Weights) -> Callable[..., Any]:
    import jax.numpy as jnp

    one, other = weights(6, 4), weights(6, 4)
    return lambda left, right: (left @ one - right @ other, jnp.tanh(left * right))


_MODELS: dict[str, tuple[Callable[[_Weights], Callable[..., Any]], dict[str, tuple[int, ...]]]] = {
    "mlp": (_build_mlp, {"x": (12,)}),
    "cnn": (_build_cnn, {"x": (16, 16, 3)}),
    "resnet": (_build_resnet, {"x": (16, 16, 3)}),
    "mobilenet-v2": (_build_mobilenet, {"x": (16, 16, 3)}),
    "lstm": (_build_lstm, {"x": (6, 8)}),
    "attention": (_build_attention, {"x": (6, 8)}),
    "two-inputs": (_build_two_inputs, {"left": (6,), "right": (6,)}),
}
