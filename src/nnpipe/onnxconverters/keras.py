"""ONNX conversion with Keras on TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.native_output import suppress_log_messages
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch
from nnpipe.frameworks.keras import import_keras
from nnpipe.onnxconverters._samples import make_random_inputs


class KerasONNXConversion(ONNXConversion):
    """Exports Keras models on TensorFlow with tf2onnx; there is no importer of ONNX for Keras 3."""

    formerly: ClassVar[tuple[str, ...]] = ("TensorFlowONNXConversion",)
    framework: ClassVar[str] = "TensorFlow / Keras"
    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras", "tf2onnx", "onnx")
    install: ClassVar[str] = "nnpipe[tensorflow]"

    def models(self) -> Iterator[ConversionCase]:
        """Yield dense, convolutional, residual, recurrent and attention networks, and Keras's
        MobileNetV2.
        """
        _, keras = import_keras()
        for name, (build, shapes) in _MODELS.items():
            keras.utils.set_random_seed(0)
            tensors = [keras.Input(shape, name=tensor) for tensor, shape in shapes.items()]
            yield ConversionCase(
                name, keras.Model(tensors, build(keras, *tensors)), make_random_inputs(shapes)
            )

    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run a model in inference mode and return its outputs."""
        import_keras()
        found = model(list(inputs.values()), training=False)
        return [
            tensor.numpy() for tensor in (found if isinstance(found, (list, tuple)) else (found,))
        ]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Export a model with a free batch size."""
        tensorflow, _ = import_keras()
        import tf2onnx

        signature = [
            tensorflow.TensorSpec((None, *array.shape[1:]), array.dtype, name=name)
            for name, array in case.inputs.items()
        ]

        def infer(*tensors: Any) -> Any:
            return case.model(list(tensors), training=False)

        with suppress_log_messages(
            "tf2onnx", level=logging.ERROR
        ):  # it reports every attempted rewriting
            found, _ = tf2onnx.convert.from_function(
                tensorflow.function(infer, autograph=False), input_signature=signature, opset=opset
            )
        write_bytes(path, found.SerializeToString())

    def import_model(self, path: Path) -> Any:
        """Raise ``NotSupported``: there is no importer."""
        raise NotSupported(
            "nothing reads ONNX into Keras 3 (onnx2keras and onnx-tf stopped at Keras 2)"
        )


def _build_mlp(keras: Any, x: Any) -> Any:
    layers = keras.layers
    return layers.Dense(5, activation="softmax")(layers.Dense(24, activation="relu")(x))


def _build_cnn(keras: Any, x: Any) -> Any:
    layers = keras.layers
    x = layers.Activation("relu")(
        layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x))
    )
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="gelu")(layers.MaxPooling2D()(x))
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def _build_resnet(keras: Any, x: Any) -> Any:
    layers = keras.layers
    x = layers.Conv2D(8, 3, padding="same")(x)
    for width, stride in ((8, 1), (16, 2)):
        inner = layers.Conv2D(width, 3, stride, "same", use_bias=False)(x)
        inner = layers.ReLU()(layers.BatchNormalization()(inner))
        inner = layers.BatchNormalization()(
            layers.Conv2D(width, 3, 1, "same", use_bias=False)(inner)
        )
        around = x if stride == 1 else layers.Conv2D(width, 1, stride)(x)
        x = layers.ReLU()(layers.Add()([inner, around]))
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def _build_mobilenet(keras: Any, x: Any) -> Any:
    # Without softmax: the outputs of untrained layers are so small that it would make all classes
    # equal.
    return keras.applications.MobileNetV2(
        input_tensor=x, alpha=0.35, weights=None, classes=5, classifier_activation=None
    ).output


def _build_lstm(keras: Any, x: Any) -> Any:
    return keras.layers.Dense(5)(keras.layers.LSTM(10)(x))


def _build_attention(keras: Any, x: Any) -> Any:
    layers = keras.layers
    inner = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(inner, inner)])
    return layers.Dense(8, activation="gelu")(layers.LayerNormalization()(x))


def _build_two_inputs(keras: Any, left: Any, right: Any) -> Any:
    layers = keras.layers
    return [
        layers.Subtract()([layers.Dense(4)(left), layers.Dense(4)(right)]),
        layers.Multiply()([left, right]),
    ]


_MODELS: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "mlp": (_build_mlp, {"x": (12,)}),
    "cnn": (_build_cnn, {"x": (16, 16, 3)}),
    "resnet": (_build_resnet, {"x": (16, 16, 3)}),
    "mobilenet-v2": (_build_mobilenet, {"x": (32, 32, 3)}),
    "lstm": (_build_lstm, {"x": (6, 8)}),
    "attention": (_build_attention, {"x": (6, 8)}),
    "two-inputs": (_build_two_inputs, {"left": (6,), "right": (6,)}),
}
