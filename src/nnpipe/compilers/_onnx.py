"""Steps shared by compilers of ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_external_data import write_joined

_FATAL = 4  # log severity: errors are raised, so there is nothing to print
_MADE = "fused/"


class ONNXRewriter(WritingCompiler):
    """A compiler that reads and writes ONNX models."""

    requires: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx")
    install: ClassVar[str] = "nnpipe[onnx]"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    one_file: ClassVar[bool] = True
    produces: ClassVar[str] = "onnx"
    suffix: ClassVar[str] = ".onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx")


def in_one_file(source: Path, folder: Path) -> Path:
    """Return a single file with the model and its weights: the source itself, or a new one in ``folder``.

    Raises
    ------
    ArtifactError
        If the source is damaged, or refers to weight files outside its folder.
    """
    file = read_onnx(source)
    file.check_external()
    if not file.external:
        return source
    whole = folder / "whole.onnx"
    write_joined(file, whole)
    return whole


def optimised(source: Path, destination: Path, level: str) -> None:
    """Optimise a model with ONNX Runtime and write the result.

    Tensors that are new in the result get names of their own: ONNX Runtime makes the same names again when it
    fuses further at loading, and then refuses the model ("Attempt to replace the existing tensor", 1.31).

    Parameters
    ----------
    source, destination
        ONNX files.
    level
        A member of ``onnxruntime.GraphOptimizationLevel``.
    """
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(destination)
    # Nothing is run, so weights need not be repacked for kernels, which would take their memory once more.
    options.add_session_config_entry("session.disable_prepacking", "1")
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    known = _tensors(onnx.load_model(str(source), load_external_data=False).graph)
    model = onnx.load_model(str(destination))
    if new := _tensors(model.graph) - known:
        prefix = _MADE
        while any(name.startswith(prefix) for name in known):  # the source has been optimised before
            prefix += _MADE
        rename(model.graph, {name: f"{prefix}{name}" for name in new})
        onnx.save_model(model, str(destination))


def _tensors(graph: Any) -> set[str]:
    """Return the names of the tensors that a graph computes or holds, without those of graphs inside."""
    return {name for node in graph.node for name in node.output} | {held.name for held in graph.initializer}


def rename(graph: Any, names: dict[str, str]) -> None:
    """Rename tensors of a graph, also where graphs inside use them."""
    for node in graph.node:
        for held in (node.input, node.output):
            held[:] = [names.get(name, name) for name in held]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                rename(inner, names)
    for held in (*graph.initializer, *graph.value_info, *graph.output, *graph.sparse_initializer):
        named = held.values if hasattr(held, "values") else held
        named.name = names.get(named.name, named.name)


def fix_batch(model: Any, io: IOSpec, batch: int) -> None:
    """Set free first axes of the inputs to a length, and all axes that depend on them.

    An output keeps a first axis that is not the batch axis, such as the number of boxes found.

    Parameters
    ----------
    model
        An ``onnx.ModelProto`` without external weights.
    io
        Its inputs and outputs, without weights.
    batch
        The batch size.
    """
    import onnx

    free = {spec.name for spec in io.inputs if spec.shape[:1] == (None,)}
    given = [_axes(value) for value in model.graph.input if value.name in free]
    names = {axes[0].dim_param for axes in given} - {""}
    for axes in given:
        axes[0].dim_value = batch
    for value in (*model.graph.input, *model.graph.output):
        for axis in _axes(value):
            if axis.dim_param in names:
                axis.dim_value = batch
    # The inferred inner shapes are no longer valid.
    del model.graph.value_info[:]
    inferred = {value.name: _axes(value) for value in onnx.shape_inference.infer_shapes(model).graph.output}
    for value in model.graph.output:
        for axis, found in zip(_axes(value), inferred[value.name], strict=False):
            if not axis.HasField("dim_value") and found.HasField("dim_value"):
                axis.dim_value = found.dim_value


def _axes(value: Any) -> Any:
    return value.type.tensor_type.shape.dim
