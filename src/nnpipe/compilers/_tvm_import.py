"""Models as Relax modules of Apache TVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nnpipe.compilers._onnx import in_one_file
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.frameworks.hush import hushed
from nnpipe.frameworks.torch_bounded import exported_anew, io_of_program, positional_module


def imported(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    """Import a model, with its first axes fixed where ``batch`` says so.

    Returns
    -------
    tuple
        A Relax module whose ``main`` takes and gives tensors in the order of the ``IOSpec`` beside it.
    """
    return (_from_onnx if artifact.format == "onnx" else _from_torch)(artifact, batch)


def _from_onnx(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    with TemporaryDirectory() as folder:
        whole = in_one_file(artifact.path, Path(folder))
        file = read_onnx(whole)
        with hushed():
            import onnx
            from tvm.relax.frontend.onnx import from_onnx

            model = onnx.load_model(str(whole))
    io = file.io(artifact.io)
    fixed = _with_batch(io, batch)
    shapes = {spec.name: list(spec.shape) for spec in fixed.inputs if None not in spec.shape}
    free = {spec.name for spec in io.inputs} - shapes.keys()
    if batch is not None and free:
        raise CompileError(
            f"axes of {sorted(free)[0]!r} other than the first are free, and --fixed-batch fixes no more"
        )
    with hushed():
        module = from_onnx(model, shape_dict=shapes if batch is not None else None, keep_params_in_input=False)
    if len(module["main"].params) != len(io.inputs):
        raise CompileError(f"TVM sees {len(module['main'].params)} inputs, the file has {len(io.inputs)}")
    return module, _as_given(module, fixed)


def _from_torch(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    module, io = positional_module(artifact.path)
    with hushed():
        from tvm.relax.frontend.torch import from_exported_program

        program = exported_anew(module, _with_batch(io, batch), None)
        return from_exported_program(program), io_of_program(program, io)


def _with_batch(io: IOSpec, batch: int | None) -> IOSpec:
    def fixed(spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(batch, *spec.shape[1:])) if spec.shape[:1] == (None,) else spec

    return io if batch is None else IOSpec(tuple(map(fixed, io.inputs)), tuple(map(fixed, io.outputs)))


def _as_given(module: Any, io: IOSpec) -> IOSpec:
    """Take the element types and shapes of outputs from what the module really gives."""
    returned = module["main"].ret_ty
    fields = list(returned.fields) if hasattr(returned, "fields") else [returned]
    if len(fields) != len(io.outputs):
        raise CompileError(f"TVM gives {len(fields)} outputs, the file has {len(io.outputs)}")
    outputs = []
    for field, spec in zip(fields, io.outputs, strict=True):
        shape = spec.shape
        if getattr(field, "shape", None) is not None and len(field.shape) == len(shape):
            shape = tuple(int(n.value) if hasattr(n, "value") else None for n in field.shape)
        outputs.append(TensorSpec(spec.name, shape, str(field.dtype)))
    return IOSpec(tuple(TensorSpec(s.name, s.shape, s.dtype) for s in io.inputs), tuple(outputs))
