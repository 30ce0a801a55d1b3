"""TensorFlow Lite files that say something else than they should: well formed, but perhaps with no meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.testing.model_files import _packed

_LENGTHS = (0, 1, 2, 3, 4, 5, 7, 16, 300, -1)
_NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 9, 100, 127)
_TYPES = ("INT8", "UINT8", "INT16", "INT32", "INT64", "FLOAT32", "BOOL")


def changed_graph(data: bytes, random: np.random.Generator) -> bytes:
    """Return a copy of a file in which some shape, type, scale, constant, option or reference is another one.

    Parameters
    ----------
    data
        A TensorFlow Lite file; requires ``ai_edge_litert``.
    random
        Where choices come from.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    changes = (_shape, _type, _quantisation, _constant, _option, _reference, _kind)
    for _ in range(int(random.integers(1, 4))):
        changes[int(random.integers(len(changes)))](model, random)
    return _packed(model)


def _any(things: Any, random: np.random.Generator) -> Any:
    return things[int(random.integers(len(things)))]


def _shape(model: Any, random: np.random.Generator) -> None:
    tensor = _any(model.subgraphs[0].tensors, random)
    shape = [int(n) for n in (tensor.shape if tensor.shape is not None else ())]
    how = int(random.integers(4))
    if how == 0:
        shape.append(_any(_LENGTHS, random))
    elif how == 1 and shape:
        shape.pop(int(random.integers(len(shape))))
    elif shape:
        shape[int(random.integers(len(shape)))] = _any(_LENGTHS, random)
    tensor.shape = shape


def _type(model: Any, random: np.random.Generator) -> None:
    from ai_edge_litert import schema_py_generated as schema

    _any(model.subgraphs[0].tensors, random).type = getattr(schema.TensorType, _any(_TYPES, random))


def _quantisation(model: Any, random: np.random.Generator) -> None:
    quantisation = _any(model.subgraphs[0].tensors, random).quantization
    if quantisation is None or quantisation.scale is None:
        return
    scales = (0.0, 1e-30, 1e-6, 0.5, 1.0, 1e6, 1e30, float("inf"), float("nan"), -1.0)
    how = int(random.integers(4))
    if how == 0:
        quantisation.scale = np.full(len(quantisation.scale), _any(scales, random), np.float32)
    elif how == 1:
        quantisation.zeroPoint = np.full(len(quantisation.scale), _any((-129, -128, -1, 0, 127, 128, 255), random))
    elif how == 2:
        quantisation.scale = np.float32(quantisation.scale * 2.0 ** random.uniform(-12, 12))
    else:
        quantisation.quantizedDimension = _any(_NUMBERS, random)


def _constant(model: Any, random: np.random.Generator) -> None:
    held = [buffer for buffer in model.buffers if buffer.data is not None and len(buffer.data)]
    if not held:
        return
    buffer = _any(held, random)
    content = np.array(buffer.data, np.uint8)
    if len(content) % 4 == 0:
        content.view(np.int32)[int(random.integers(len(content) // 4))] = _any(_NUMBERS, random)
    else:
        content[int(random.integers(len(content)))] = int(random.integers(256))
    buffer.data = content


def _option(model: Any, random: np.random.Generator) -> None:
    options = _any(model.subgraphs[0].operators, random).builtinOptions
    held = sorted(vars(options).items()) if options is not None else []
    names = [name for name, value in held if isinstance(value, int)]
    if names:
        name = _any(names, random)
        numbers = [n for n in _NUMBERS if 0 <= n < 4] if "ctivation" in name or "adding" in name else _NUMBERS
        value = _any(numbers, random)
        setattr(options, name, bool(value) if isinstance(getattr(options, name), bool) else value)


def _reference(model: Any, random: np.random.Generator) -> None:
    graph = model.subgraphs[0]
    operator = _any(graph.operators, random)
    side = operator.inputs if random.integers(4) else operator.outputs
    if side is not None and len(side):
        side[int(random.integers(len(side)))] = int(random.integers(-1, len(graph.tensors)))


def _kind(model: Any, random: np.random.Generator) -> None:
    operator = _any(model.subgraphs[0].operators, random)
    operator.opcodeIndex = int(random.integers(len(model.operatorCodes)))
