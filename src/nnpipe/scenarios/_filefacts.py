"""What a model file holds, in words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nnpipe.core.component import overridden
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape
from nnpipe.scenarios._modelfiles import format_of, wrapper_of

_MOST_KINDS = 40


def describe_file(path: Path) -> str:
    """Write what the model in a file takes and gives, which operations compute it, and how many weights they have.

    Raises
    ------
    NNPipeError
        If the file is missing, damaged, or of a kind that no wrapper opens, or if that needs what is not installed.
    """
    format = format_of(path)
    cls = wrapper_of(format)
    if cls is None:
        raise ConfigError(f"{path}: {format} files are run by a runtime alone; no model wrapper here looks into them")
    cls.check_installed()
    wrapper = cls.from_json({"model_path": str(path)})
    io = wrapper.io
    lines = [f"{path}  ({format}, {path.stat().st_size:,} bytes)", "", *_tensors(io)]
    if overridden(cls, "get_inference_graph", ModelWrapper):
        kinds = Counter(operation.kind for operation in wrapper.get_inference_graph().operations)
        told = [f"{count} {kind}" for kind, count in kinds.most_common(_MOST_KINDS)]
        more = f", and {len(kinds) - _MOST_KINDS} further kinds" if len(kinds) > _MOST_KINDS else ""
        lines.append(f"operations  {kinds.total()}: {', '.join(told)}{more}")
    if overridden(cls, "get_weights", ModelWrapper):
        weights = wrapper.get_weights()
        kinds = Counter({array.dtype.name: 0 for array in weights.values()})
        for array in weights.values():
            kinds[array.dtype.name] += array.size
        numbers = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        lines.append(f"weights     {len(weights)} tensors: {numbers or 'no numbers'}")
    lines += [f"note        {remark}" for remark in getattr(wrapper, "remarks", ())]
    lines += [
        "",
        "measure it with",
        f"  nnpipe inference_performance {cls.__name__} DATASET OUT.json --model-path {path}",
        f"nnpipe info {cls.__name__} explains the options for what it wants of samples",
    ]
    return "\n".join(lines)


def _tensors(io: IOSpec) -> list[str]:
    sides = (("takes", io.inputs), ("gives", io.outputs))
    return [f"{word:<12}{_tensor(spec)}" for word, specs in sides for spec in specs]


def _tensor(spec: TensorSpec) -> str:
    told = f"{spec.name}  {show_shape(spec.shape)} {spec.dtype}"
    zero = spec.zero_point or 0
    if spec.scale is not None and not isinstance(spec.scale, tuple) and not isinstance(zero, tuple):
        told += f", quantised: number = {spec.scale:g} * (stored {-int(zero):+d})"
    elif spec.scale is not None:
        told += f", quantised along axis {spec.axis}"
    return told
