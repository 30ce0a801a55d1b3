"""ONNX conversion with PyTorch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import ConversionError, NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.messages import format_one_line
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.onnxconverters._samples import make_random_inputs

# Small PyTorch models of common kinds, with random weights from PyTorch's generator.
#
# Deep models end without a bias: it would dominate the small outputs of untrained layers, so that
# outputs would agree even after wrong computations.


def build_mlp() -> Any:
    """Return a model of two dense layers."""
    from torch import nn

    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5), nn.Softmax(1))


def build_cnn() -> Any:
    """Return a model of convolutions with batch normalisation, pooling and a dense layer."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(
            nn.Conv2d(8, 16, 3, padding=1, stride=2),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
        ),
        *(nn.Flatten(), nn.Linear(16, 5, bias=False)),
    )


def build_resnet() -> Any:
    """Return a model of residual blocks, one of them with a projection."""
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self, given: int, wanted: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(given, wanted, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(wanted, wanted, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(wanted) for _ in range(2)])
            same = given == wanted and stride == 1
            self.around = nn.Identity() if same else nn.Conv2d(given, wanted, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            inner = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(self.norms[1](self.second(inner)) + self.around(x))

    tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5, bias=False))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8, 8, 1), Block(8, 16, 2), *tail)


def build_mobilenet() -> Any:
    """Return a model of inverted residuals with depthwise convolutions, as in MobileNetV2."""
    from torch import nn

    class Inverted(nn.Module):  # type: ignore[misc]
        def __init__(self, given: int, wanted: int, stride: int) -> None:
            super().__init__()
            wide = 4 * given
            self.inner = nn.Sequential(
                *(nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
                *(
                    nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
                    nn.BatchNorm2d(wide),
                    nn.ReLU6(),
                ),
                *(nn.Conv2d(wide, wanted, 1, bias=False), nn.BatchNorm2d(wanted)),
            )
            self.residual = stride == 1 and given == wanted

        def forward(self, x: Any) -> Any:
            return x + self.inner(x) if self.residual else self.inner(x)

    head = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(12, 5, bias=False))
    return nn.Sequential(*head, Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1), *tail)


def build_lstm() -> Any:
    """Return a model of a recurrent layer, whose output is its last step."""
    from torch import nn

    class Reader(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.reads = nn.LSTM(8, 10, batch_first=True)
            self.judges = nn.Linear(10, 5)

        def forward(self, x: Any) -> Any:
            return self.judges(self.reads(x)[0][:, -1])

    return Reader()


def build_attention() -> Any:
    """Return an encoder layer of a transformer."""
    from torch import nn

    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)


def build_two_inputs() -> Any:
    """Return a model with two inputs, which must not be swapped, and two outputs."""
    import torch
    from torch import nn

    class Two(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, left: Any, right: Any) -> Any:
            return self.one(left) - 2 * self.other(right), torch.tanh(left * right)

    return Two()


MODELS: dict[str, tuple[Callable[[], Any], dict[str, tuple[int, ...]]]] = {
    "mlp": (build_mlp, {"x": (12,)}),
    "cnn": (build_cnn, {"x": (3, 16, 16)}),
    "resnet": (build_resnet, {"x": (3, 16, 16)}),
    "mobilenet-v2": (build_mobilenet, {"x": (3, 32, 32)}),
    "lstm": (build_lstm, {"x": (6, 8)}),
    "attention": (build_attention, {"x": (6, 8)}),
    "two-inputs": (build_two_inputs, {"left": (6,), "right": (6,)}),
}
"""The function that creates each model, and the shapes of its inputs without the batch axis."""

# The exporter based on torch.export writes no older opsets; the tracing exporter does.
_OLDEST_BY_EXPORT = 18


class PyTorchONNXConversion(ONNXConversion):
    """Exports PyTorch models with ``torch.export`` (opset 18 and later) or tracing, and imports
    with onnx2torch.
    """

    framework: ClassVar[str] = "PyTorch"
    requires: ClassVar[tuple[str, ...]] = ("torch", "onnx", "onnxscript")
    install: ClassVar[str] = "nnpipe[torch]"

    def models(self) -> Iterator[ConversionCase]:
        """Yield dense, convolutional, residual, recurrent and attention networks."""
        import torch

        for name, (build, shapes) in MODELS.items():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = build().eval()
            yield ConversionCase(name, model, make_random_inputs(shapes))

    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run a module and return its outputs."""
        import torch

        with torch.no_grad():
            found = model(*(torch.from_numpy(array) for array in inputs.values()))
        return [
            tensor.numpy() for tensor in (found if isinstance(found, (tuple, list)) else (found,))
        ]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Export a model with a free batch size."""
        import torch

        example = tuple(torch.from_numpy(array) for array in case.inputs.values())
        with suppress_output(), torch.no_grad():
            if opset >= _OLDEST_BY_EXPORT:
                free = {0: torch.export.Dim("batch", min=1)}
                program = torch.onnx.export(
                    case.model,
                    example,
                    dynamo=True,
                    opset_version=opset,
                    verbose=False,
                    input_names=list(case.inputs),
                    dynamic_shapes=tuple(free for _ in example),
                )
                write_bytes(path, program.model_proto.SerializeToString())
                return
            buffer = io.BytesIO()
            torch.onnx.export(
                case.model,
                example,
                buffer,
                dynamo=False,
                opset_version=opset,
                input_names=list(case.inputs),
                dynamic_axes={name: {0: "batch"} for name in case.inputs},
            )
            write_bytes(path, buffer.getvalue())

    def import_model(self, path: Path) -> Any:
        """Return a file's model, imported with onnx2torch; PyTorch has no importer of its own."""
        try:
            from onnx2torch import convert
        # RuntimeError: torchvision for another PyTorch
        except (ImportError, RuntimeError) as error:
            raise NotSupported(
                "PyTorch reads ONNX with onnx2torch, which needs the torchvision that belongs to "
                "this PyTorch: "
                f"{format_one_line(error)}"
            ) from None
        try:
            with suppress_output():
                return convert(str(path)).eval()
        except NotImplementedError as error:
            raise ConversionError(f"{path}: onnx2torch: {format_one_line(error)}") from None
