"""ONNX conversion with PyTorch."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import ConversionError, NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.messages import one_line
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch
from nnpipe.frameworks.framework_output import hushed
from nnpipe.onnxconverters._samples import some_inputs
from nnpipe.onnxconverters._torch_models import MODELS

# The exporter based on torch.export writes no older opsets; the tracing exporter does.
_OLDEST_BY_EXPORT = 18


class PyTorchONNXConversion(ONNXConversion):
    """Exports PyTorch models with ``torch.export`` (opset 18 and later) or tracing, and imports with onnx2torch."""

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
            yield ConversionCase(name, model, some_inputs(shapes))

    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run a module and return its outputs."""
        import torch

        with torch.no_grad():
            found = model(*(torch.from_numpy(array) for array in inputs.values()))
        return [tensor.numpy() for tensor in (found if isinstance(found, (tuple, list)) else (found,))]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Export a model with a free batch size."""
        import torch

        example = tuple(torch.from_numpy(array) for array in case.inputs.values())
        with hushed(), torch.no_grad():
            if opset >= _OLDEST_BY_EXPORT:
                free = {0: torch.export.Dim("batch", min=1)}
                program = torch.onnx.export(
                    case.model, example, dynamo=True, opset_version=opset, verbose=False,
                    input_names=list(case.inputs), dynamic_shapes=tuple(free for _ in example),
                )  # fmt: skip
                write_bytes(path, program.model_proto.SerializeToString())
                return
            buffer = io.BytesIO()
            torch.onnx.export(
                case.model, example, buffer, dynamo=False, opset_version=opset, input_names=list(case.inputs),
                dynamic_axes={name: {0: "batch"} for name in case.inputs},
            )  # fmt: skip
            write_bytes(path, buffer.getvalue())

    def import_model(self, path: Path) -> Any:
        """Return a file's model, imported with onnx2torch; PyTorch has no importer of its own."""
        try:
            from onnx2torch import convert
        except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision for another PyTorch
            raise NotSupported(
                "PyTorch reads ONNX with onnx2torch, which needs the torchvision that belongs to this PyTorch: "
                f"{one_line(error)}"
            ) from None
        try:
            with hushed():
                return convert(str(path)).eval()
        except NotImplementedError as error:
            raise ConversionError(f"{path}: onnx2torch: {one_line(error)}") from None
