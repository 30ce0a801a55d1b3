"""Export of PyTorch models as programs and ONNX files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConversionError, MissingDependency, NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_onnx import find_export_cause, mark_whole_pools
from nnpipe.frameworks.torch_session import to_tensor
from nnpipe.modelwrappers.frameworks.pytorch_training import as_tuple

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

PREFIX = "model."
"""Prefix of the names of weights and layers in an exported program."""

# torch.export treats axes of length 0 and 1 specially; any other length is suitable for an example.
_EXAMPLE_BATCH, _EXAMPLE_LENGTH = 2, 32
# The exporter based on torch.export writes no older opsets.
_OLDEST_BY_EXPORT = 18


def wrap_for_inference(wrapper: PyTorchWrapper, module: Any, named: bool) -> Any:
    """Return a module of the model and its ``finish``.

    With ``named``, it takes and returns a dict of tensors, so that the exported
    file contains their names; otherwise it takes tensors in the order of the
    inputs and returns a tuple.
    """
    import torch

    inputs = [spec.name for spec in wrapper.io.inputs]
    outputs = [spec.name for spec in wrapper.io.outputs]

    class Deployed(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *given: Any) -> Any:
            return wrapper.finish(as_tuple(self.model(*given)))

    class Named(Deployed):
        def forward(self, *given: Any) -> Any:
            found = super().forward(*(given[0][name] for name in inputs))
            return dict(zip(outputs, found, strict=True))

    return (Named() if named else Deployed()).eval()


def export_program(wrapper: PyTorchWrapper, module: Any, named: bool = False) -> Any:
    """Export the model for inference; free axes stay free.

    Raises
    ------
    ConversionError
        If ``torch.export`` cannot trace the model.
    """
    import torch

    whole = wrap_for_inference(wrapper, module, named)
    example = _make_example(wrapper)
    axes = [_list_free_axes(spec) for spec in wrapper.io.inputs]
    if named:
        names = [spec.name for spec in wrapper.io.inputs]
        args: tuple[Any, ...] = (dict(zip(names, example, strict=True)),)
        shapes: tuple[Any, ...] = (dict(zip(names, axes, strict=True)),)
    else:
        args, shapes = example, tuple(axes)
    try:
        with torch.no_grad():
            program = torch.export.export(whole, args, dynamic_shapes=(shapes,))
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"torch.export cannot follow {type(wrapper).__name__}: {format_one_line(error)}"
        ) from error
    nodes = {node.name: node for node in program.graph.nodes}
    for spec, name in zip(wrapper.io.inputs, program.graph_signature.user_inputs, strict=True):
        for axis, (said, found) in enumerate(
            zip(spec.shape, nodes[name].meta["val"].shape, strict=True)
        ):
            if said is None and get_fixed_length(found) is not None:
                raise ConversionError(
                    f"{type(wrapper).__name__} cannot do with any length of axis {axis} of "
                    f"{spec.name!r}, "
                    "as its io says; give the length there"
                )
    return program


def get_fixed_length(length: Any) -> int | None:
    """Return the length of a traced axis, or ``None`` if it is free; symbols may stand for
    constants.
    """
    text = str(length)
    return int(text) if text.isdigit() else None


def _make_example(wrapper: PyTorchWrapper) -> tuple[Any, ...]:
    """Return example tensors for tracing; free axes get a length, the first one a batch size."""
    specs = [
        TensorSpec(
            spec.name,
            tuple(
                _EXAMPLE_LENGTH if axis and length is None else length
                for axis, length in enumerate(spec.shape)
            ),
            spec.dtype,
        )
        for spec in wrapper.io.inputs
    ]
    batch = generate_random_batch(IOSpec(tuple(specs), ()), _EXAMPLE_BATCH)
    return tuple(to_tensor(batch[spec.name], wrapper.device) for spec in specs)


def _list_free_axes(spec: TensorSpec) -> dict[int, Any]:
    from torch.export import Dim

    # All tensors share one batch size; other free axes are independent.
    return {
        axis: Dim("batch", min=1) if axis == 0 else Dim.AUTO
        for axis, n in enumerate(spec.shape)
        if n is None
    }


def export(wrapper: PyTorchWrapper, module: Any, path: Path, format: str) -> Artifact:
    """Write the model, with its structure, to a file, whole or not at all."""
    import torch

    frameworks = [("torch", str(torch.__version__))]
    if format == "torch-export":
        data = _serialize_program(wrapper, module)
    elif format == "onnx":
        data = _serialize_onnx(wrapper, module, frameworks)
    else:
        raise NotSupported(
            f"{type(wrapper).__name__} cannot be exported as {format}; it can as "
            f"{' or '.join(wrapper.exports)}"
        )
    write_bytes(path, data)
    return wrapper.artifact_of(path, format, tuple(frameworks))


def _serialize_program(wrapper: PyTorchWrapper, module: Any) -> bytes:
    import torch

    program = export_program(wrapper, module, named=True)
    program.example_inputs = None  # the only part that would be pickled
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # contains paths of this machine
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _serialize_onnx(
    wrapper: PyTorchWrapper, module: Any, frameworks: list[tuple[str, str]]
) -> bytes:
    try:
        import onnx
    except ImportError:
        raise MissingDependency(
            f"{type(wrapper).__name__} needs onnx for that export, which is not installed: pip "
            f"install 'nnpipe[torch]'"
        ) from None
    frameworks.append(("onnx", onnx.__version__))
    write = (
        _export_onnx_by_dynamo if wrapper.onnx_opset >= _OLDEST_BY_EXPORT else _export_onnx_by_trace
    )
    model = write(wrapper, module)
    for message in [model, model.graph, *model.graph.node, *model.graph.value_info]:
        del message.metadata_props[:]  # contains paths of this machine
    for node in model.graph.node:
        node.ClearField("doc_string")
    got = {entry.domain: entry.version for entry in model.opset_import}.get("")
    if got != wrapper.onnx_opset:
        raise ConversionError(
            f"PyTorch wrote ONNX opset {got} instead of {wrapper.onnx_opset}; set --onnx-opset "
            f"{got}"
        )
    try:
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf raises various exceptions beyond 2 GiB
        raise ConversionError(
            f"{type(wrapper).__name__} does not fit into an ONNX file: {format_one_line(error)}"
        ) from None


def _export_onnx_by_dynamo(wrapper: PyTorchWrapper, module: Any) -> Any:
    import torch

    program = export_program(wrapper, module)
    try:
        # With gradients, attention would give another memory layout.
        with suppress_output(), torch.no_grad(), mark_whole_pools(program):
            found = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=wrapper.onnx_opset,
                input_names=[spec.name for spec in wrapper.io.inputs],
                output_names=[spec.name for spec in wrapper.io.outputs],
                verbose=False,
            )
    except ImportError as error:
        raise MissingDependency(
            f"exporting to ONNX opset {wrapper.onnx_opset} needs {error.name}, which is not "
            f"installed: "
            "pip install 'nnpipe[torch]'"
        ) from None
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"PyTorch cannot export {type(wrapper).__name__} to ONNX: {find_export_cause(error)}"
        ) from error
    return found.model_proto


def _export_onnx_by_trace(wrapper: PyTorchWrapper, module: Any) -> Any:
    """Export with the older exporter, the only one that writes opsets before 18."""
    import onnx
    import torch

    axes = {
        spec.name: {
            axis: "batch" if axis == 0 else f"{spec.name}_{axis}"
            for axis, n in enumerate(spec.shape)
            if n is None
        }
        for spec in wrapper.io
    }
    buffer = io.BytesIO()
    try:
        with suppress_output():
            # Of branches that depend on values, only the one taken would be written.
            warnings.simplefilter("error", torch.jit.TracerWarning)
            torch.onnx.export(
                wrap_for_inference(wrapper, module, named=False),
                _make_example(wrapper),
                buffer,
                dynamo=False,
                opset_version=wrapper.onnx_opset,
                input_names=[spec.name for spec in wrapper.io.inputs],
                output_names=[spec.name for spec in wrapper.io.outputs],
                dynamic_axes=axes,
            )
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"PyTorch cannot export {type(wrapper).__name__} to ONNX: {format_one_line(error)}"
        ) from error
    return onnx.load_from_string(buffer.getvalue())
