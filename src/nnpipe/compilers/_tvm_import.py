"""Import of models as Relax modules of Apache TVM."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nnpipe.compilers._onnx import fix_batch, merge_into_one_file
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import with_batch
from nnpipe.core.errors import CompileError, NotSupported
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_network import read_nodes
from nnpipe.frameworks.onnx_known_faults import TVM, check_known_faults
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_bounded import (
    export_positional,
    make_positional_module,
    read_program_io,
)
from nnpipe.frameworks.torch_program import load_program
from nnpipe.frameworks.tvm import UNTAKEN


def import_relax_module(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    """Import a model; ``batch``, if given, fixes its first axes.

    Returns
    -------
    tuple
        A Relax module, and the ``IOSpec`` whose order of tensors its ``main`` follows.
    """
    return (_from_onnx if artifact.format == "onnx" else _from_torch)(artifact, batch)


def _from_onnx(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    with TemporaryDirectory() as folder:
        whole = merge_into_one_file(artifact.path, Path(folder))
        file = read_onnx(whole)
        with suppress_output():
            import onnx
            from tvm.relax.frontend.onnx import from_onnx

            model = onnx.load_model(str(whole))
    io = file.io(artifact.io)
    _check_kinds(io)
    check_known_faults(artifact.path, "TVM", TVM)
    if batch is not None:
        fix_batch(model, io, batch)
    try:
        with suppress_output():
            module = from_onnx(model, keep_params_in_input=False)
    except KeyError as error:
        raise CompileError(
            f"TVM's importer needs {error}, an attribute or tensor that is optional in ONNX"
        ) from None
    _refuse_wrong_expand(artifact.path, module)
    if len(module["main"].params) != len(io.inputs):
        raise CompileError(
            f"TVM sees {len(module['main'].params)} inputs, the file has {len(io.inputs)}"
        )
    return module, _as_given(module, IOSpec(with_batch(io, batch).inputs, io.outputs))


def _from_torch(artifact: Artifact, batch: int | None) -> tuple[Any, IOSpec]:
    loaded = load_program(artifact.path)
    io = loaded.io
    _check_kinds(io)
    with suppress_output():
        from tvm.relax.frontend.torch import from_exported_program

        program = export_positional(make_positional_module(loaded), with_batch(io, batch), None)
        return from_exported_program(program), read_program_io(program, io)


def _check_kinds(io: IOSpec) -> None:
    """Check that TVM's modules can take and return all tensors.

    Raises
    ------
    CompileError
        If they cannot; the message names the first such tensor.
    """
    for spec in io:
        if spec.dtype in UNTAKEN:
            raise CompileError(
                f"tensor {spec.name!r} is {spec.dtype}, which cannot be put into or got from TVM "
                f"here"
            )


def _as_given(module: Any, io: IOSpec) -> IOSpec:
    """Check that the module's outputs are those in the file, and return them with lengths that the
    file leaves open.

    For some operations, TVM returns an output of another shape, or a placeholder for one that it
    does not compute.
    """
    returned = module["main"].ret_ty
    fields = list(returned.fields) if hasattr(returned, "fields") else [returned]
    if len(fields) != len(io.outputs):
        raise CompileError(f"TVM gives {len(fields)} outputs, the file has {len(io.outputs)}")
    outputs = tuple(
        _merge_spec(field, spec) for field, spec in zip(fields, io.outputs, strict=True)
    )
    return IOSpec(tuple(TensorSpec(s.name, s.shape, s.dtype) for s in io.inputs), outputs)


def _merge_spec(given: Any, said: TensorSpec) -> TensorSpec:
    shape = said.shape
    if getattr(given, "shape", None) is not None:
        shape = tuple(
            int(length.value) if hasattr(length, "value") else None for length in given.shape
        )
    same = len(shape) == len(said.shape) and all(
        have is None or want is None or have == want
        for have, want in zip(shape, said.shape, strict=True)
    )
    if not same or str(given.dtype) != said.dtype:
        raise CompileError(
            f"TVM gives output {said.name!r} as {given.dtype} {show_shape(shape)}, "
            f"the file says {said.dtype} {show_shape(said.shape)}"
        )
    merged = tuple(
        want if have is None else have for have, want in zip(shape, said.shape, strict=True)
    )
    return TensorSpec(said.name, merged, said.dtype)


def _refuse_wrong_expand(path: Path, module: Any) -> None:
    """Reject an ``Expand`` to lengths known only at run time: TVM treats a 1 among them as the
    new length.
    """
    from tvm import relax

    measured: list[Any] = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.MatchCast):
                measured += list(getattr(binding.ty, "values", None) or ())
                continue
            value = binding.value
            if getattr(getattr(value, "op", None), "name", "") == "relax.broadcast_to":
                lengths = getattr(value.args[1], "values", None) or ()
                if any(length.same_as(known) for length in lengths for known in measured):
                    names = ", ".join(
                        repr(node.title) for node in read_nodes(path) if node.kind == "Expand"
                    )
                    raise NotSupported(
                        f"{path}: TVM computes Expand {names} wrongly where its shape is known "
                        f"only when the model "
                        "runs: a 1 there should keep the input's length"
                    )
