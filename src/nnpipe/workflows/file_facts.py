"""Describing the content of a model file as text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.arguments import list_arguments
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.foreign_text import join_lines
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata, Preparation
from nnpipe.core.registry import components
from nnpipe.core.tensor_metadata import OutputMetadata
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape
from nnpipe.modelwrappers.files.file_formats import find_wrapper, format_of
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.workflows.isolation.limits import call_limited, limit_process

_MOST_KINDS, _MOST_NAMES = 40, 12
_OPENED = 1 << 25  # bytes; larger files are not opened to see whether they can be run


def describe_file(path: Path) -> str:
    """Return a text with a model file's inputs, outputs, operations and number of weights.

    The file is opened in a process with limits of time and memory.

    Raises
    ------
    NNPipeError
        If the file is missing or damaged, if no wrapper opens it, or if a required package is not
        installed.
    """
    wrapper = _create_wrapper(path)
    wrapper.check_installed()
    text: str = call_limited(
        f"{__name__}:describe_here", path, {"path": str(path)}, compute_total_bytes(wrapper, path)
    )
    return text


def describe_here(request: Mapping[str, Any]) -> str:
    """Return the text on a request's file, which is opened in this process."""
    path = Path(request["path"])
    wrapper = _create_wrapper(path)
    limit_process(request["size"], wrapper)
    io, cls = wrapper.io, type(wrapper)
    own, whole = path.stat().st_size, request["size"]
    beside = f", {whole:,} with its weights" if whole > own else ""
    lines = [f"{path}  ({format_of(path)}, {own:,} bytes{beside})", "", *_format_tensors(io)]
    lines += _format_meaning(wrapper.preparation(), wrapper.meaning)
    lines += _describe_contents(cls, wrapper)
    lines += [f"note        {remark}" for remark in getattr(wrapper, "remarks", ())]
    lines += _list_refusals(format_of(path), path)
    if why := _explain_failure(wrapper, path):
        return join_lines([*lines, "", f"it cannot be run here: {why}"])
    lines += [
        "",
        "measure it with",
        f"  nnpipe inference_performance {cls.__name__} DATASET OUT.json --model-path "
        f"{shlex.quote(str(path))}",
        f"nnpipe info {cls.__name__} explains the options for what it wants of samples",
    ]
    return join_lines(lines)


def _create_wrapper(path: Path) -> ModelWrapper:
    format = format_of(path)
    cls = find_wrapper(format)
    if cls is None:
        raise ConfigError(
            f"{path}: {format} files are run by a runtime alone; no model wrapper here looks into "
            f"them"
        )
    return cls.from_json({"model_path": str(path)})


def _list_refusals(format: str, path: Path) -> list[str]:
    """Return lines on compilers that would refuse a file, with their default arguments."""
    fitting = (
        cls for cls in components(ModelCompiler) if format in cls.accepts and not cls.missing()
    )
    usual = (
        cls.from_json({})
        for cls in fitting
        if not any(each.required for each in list_arguments(cls))
    )
    return [
        f"note        {type(compiler).__name__} would refuse it: {cause}"
        for compiler in usual
        for cause in compiler.refusals(path)[:_MOST_NAMES]
    ]


def _explain_failure(wrapper: ModelWrapper, path: Path) -> str:
    """Return why a model cannot be run, found by opening it; large files are not opened for
    that.
    """
    if compute_total_bytes(wrapper, path) > _OPENED:
        return ""
    try:
        with wrapper.open(path) as model, model.session():
            pass
    except NNPipeError as error:
        return str(error)
    return ""


def compute_total_bytes(wrapper: ModelWrapper, path: Path) -> int:
    """Return the size of a wrapper's file, with those beside it that hold its weights."""
    return wrapper.bytes_in_all if isinstance(wrapper, FileModel) else path.stat().st_size


def _describe_contents(cls: type[ModelWrapper], wrapper: ModelWrapper) -> list[str]:
    """Return lines on operations and weights, read from the file if its wrapper can, or else
    from the loaded model.
    """
    lines = []
    counted = getattr(wrapper, "contents", None)
    if counted is not None:
        found = counted()
        return [_format_operations(found.operations), _format_weights(found.tensors, found.numbers)]
    with wrapper.open() as model:
        if cls.offers("get_inference_graph"):
            lines.append(
                _format_operations(
                    Counter(operation.kind for operation in model.get_inference_graph().operations)
                )
            )
        if cls.offers("get_weights"):
            weights = model.get_weights()
            numbers: Counter[str] = Counter()
            for array in weights.values():
                numbers[array.dtype.name] += array.size
            lines.append(_format_weights(len(weights), numbers))
    return lines


def _format_operations(kinds: Counter[str]) -> str:
    told = [f"{count} {kind}" for kind, count in kinds.most_common(_MOST_KINDS)]
    more = f", and {len(kinds) - _MOST_KINDS} further kinds" if len(kinds) > _MOST_KINDS else ""
    return f"operations  {kinds.total()}: {', '.join(told)}{more}"


def _format_weights(tensors: int, numbers: Counter[str]) -> str:
    told = ", ".join(f"{count:,} {kind}" for kind, count in numbers.most_common())
    return f"weights     {tensors} tensors: {told or 'no numbers'}"


def _format_tensors(io: IOSpec) -> list[str]:
    sides = (("takes", io.inputs), ("gives", io.outputs))
    return [f"{word:<12}{_format_tensor(spec)}" for word, specs in sides for spec in specs]


def _format_meaning(preparation: Preparation, meaning: ModelMetadata | None) -> list[str]:
    """Return lines on what inputs expect and outputs mean, or that this is not known."""
    if not preparation.known or meaning is None:
        how = "say it with --scale, --mean, --deviation (--scale 1: as they are)"
        known = () if meaning is None else meaning.outputs
        return [f"wants       preprocessing not known: {how}", *map(_format_output_meaning, known)]
    lines = (
        [f"wants       what the code of {meaning.code['class']} makes of samples"]
        if meaning.code
        else []
    )
    for each in meaning.inputs:
        made = (
            f", from samples of {each.sample_range[0]:g} to {each.sample_range[1]:g}"
            if each.sample_range
            else ""
        )
        lines.append(f"wants       {each.name}: {each.format_description()}{made}")
    lines += map(_format_output_meaning, meaning.outputs)
    if meaning.decoder is not None:
        lines.append(
            f"decoded by  "
            f"{meaning.decoder['class'].rpartition('.')[2]}{_format_arguments(meaning.decoder)}"
        )
    return [*lines, f"            (as {preparation.by} says)"]


def _format_output_meaning(out: OutputMetadata) -> str:
    more = ", ..." if len(out.class_names) > _MOST_NAMES else ""
    names = ", ".join(out.class_names[:_MOST_NAMES]) + more
    return f"means       {out.name}: {out.kind}{f' of {names}' if names else ''}"


def _format_arguments(described: Mapping[str, Any]) -> str:
    told = ", ".join(
        f"{name} {value}" for name, value in described["arguments"].items() if value is not None
    )
    return f": {told}" if told else ""


def _format_tensor(spec: TensorSpec) -> str:
    told = f"{spec.name}  {show_shape(spec.shape)} {spec.dtype}"
    zero = spec.zero_point or 0
    if spec.scale is not None and not isinstance(spec.scale, tuple) and not isinstance(zero, tuple):
        told += f", quantised: number = {spec.scale:g} * (stored {-int(zero):+d})"
    elif spec.scale is not None:
        told += f", quantised along axis {spec.axis}"
    return told
