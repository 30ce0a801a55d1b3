"""The models of benchmarks/fair.py, with seeded random weights, as files of the frameworks that
made them.

How fast a network runs does not depend on what its weights are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.model import ModelWrapper
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.modelwrappers.classification.mobilenet import (
    PyTorchMobileNetV2,
    TensorFlowPetDatasetMobileNetV2,
)
from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper

SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2", "keras": ".keras"}
NAMES = ("ResNet8", "ResNet20", "MobileNetV2")

_CLASSES = TensorSpec("scores", (None, 10), "float32")


class PyTorchResNet8(PyTorchWrapper):
    """MLPerf Tiny's network for pictures of 32 x 32 (Banbury et al. 2021)."""

    @property
    def io(self) -> IOSpec:
        return IOSpec((TensorSpec("image", (None, 3, 32, 32), "float32"),), (_CLASSES,))

    def build(self) -> Any:
        from torch import nn

        class Block(nn.Module):
            def __init__(self, given: int, width: int, stride: int) -> None:
                super().__init__()
                self.first = nn.Sequential(
                    nn.Conv2d(given, width, 3, stride, 1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                    nn.Conv2d(width, width, 3, 1, 1),
                    nn.BatchNorm2d(width),
                )
                self.around = nn.Conv2d(given, width, 1, stride) if stride > 1 else nn.Identity()

            def forward(self, x: Any) -> Any:
                return nn.functional.relu(self.first(x) + self.around(x))

        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            Block(16, 16, 1),
            Block(16, 32, 2),
            Block(32, 64, 2),
            nn.AvgPool2d(8),
            nn.Flatten(),
            nn.Linear(64, 10),
            nn.Softmax(1),
        )


class KerasResNet(TensorFlowWrapper):
    """ResNet8, one block a stage, or ResNet20, three; with a convolution around blocks that
    halve the picture.
    """

    blocks: int = 1

    @property
    def io(self) -> IOSpec:
        return IOSpec((TensorSpec("image", (None, 32, 32, 3), "float32"),), (_CLASSES,))

    def build(self) -> Any:
        from keras import Input, Model, layers

        def normalised(x: Any, width: int, stride: int) -> Any:
            return layers.BatchNormalization()(layers.Conv2D(width, 3, stride, "same")(x))

        given = Input((32, 32, 3), name="image")
        x = layers.ReLU()(normalised(given, 16, 1))
        for width in (16, 32, 64):
            for number in range(self.blocks):
                stride = 2 if width > 16 and number == 0 else 1
                around = layers.Conv2D(width, 1, stride)(x) if stride > 1 else x
                inside = normalised(layers.ReLU()(normalised(x, width, stride)), width, 1)
                x = layers.ReLU()(layers.Add()([inside, around]))
        x = layers.Flatten()(layers.AveragePooling2D(8)(x))
        return Model(given, layers.Dense(10, "softmax", name="scores")(x))


def wrapper_of(name: str, framework: str) -> ModelWrapper:
    """Return the wrapper of a model in ``"torch"`` or ``"keras"``."""
    if framework == "keras":
        if name == "MobileNetV2":
            return TensorFlowPetDatasetMobileNetV2(
                from_scratch=True, alpha=0.35, input_size=(96, 96), num_classes=10, num_threads=1
            )
        return KerasResNet(blocks={"ResNet8": 1, "ResNet20": 3}[name], num_threads=1)
    if name == "MobileNetV2":
        return PyTorchMobileNetV2(num_classes=10)
    return {"ResNet8": PyTorchResNet8, "ResNet20": PyTorchCIFARResNet}[name]()


def exported(name: str, format: str, folder: Path) -> Artifact:
    """Write a model in ``"onnx"``, ``"torch-export"`` or ``"keras"``."""
    model = wrapper_of(name, "keras" if format == "keras" else "torch").open()
    if format != "keras":
        import torch

        torch.manual_seed(0)
        model.native = model.wrapper.build().eval()
    with capture_native_output():
        return model.export(folder / f"{name}{SUFFIXES[format]}", format)
