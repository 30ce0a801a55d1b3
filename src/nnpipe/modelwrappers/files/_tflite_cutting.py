"""Replace computed tensors of a TensorFlow Lite model by inputs, to run its operators with given values."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable
from typing import Any

from nnpipe.core.errors import MissingDependency

_SCHEMAS = ("ai_edge_litert.schema_py_generated", "tensorflow.lite.python.schema_py_generated")
_IDENTIFIER = b"TFL3"


def cut(content: bytes, numbers: Iterable[int]) -> tuple[bytes, dict[int, int]]:
    """Return the model with an input in place of each chosen tensor that operators take, and the inputs' numbers.

    The tensors are still computed, and all others keep their numbers.

    Parameters
    ----------
    content
        Content of a file that has been checked.
    numbers
        Numbers of tensors in the first graph.
    """
    schema, flatbuffers = _schema()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    fresh: dict[int, int] = {}
    for number in numbers:
        fresh[number] = len(graph.tensors)
        tensor = copy.copy(graph.tensors[number])
        tensor.name, tensor.buffer = (tensor.name or b"") + b":given", 0
        graph.tensors.append(tensor)
    for operator in graph.operators:
        operator.inputs = [fresh.get(int(n), int(n)) for n in operator.inputs]
    graph.inputs = [*map(int, graph.inputs), *fresh.values()]
    model.signatureDefs = []  # they would not name the new inputs
    builder = flatbuffers.Builder(len(content) + (1 << 16))
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output()), fresh


def _schema() -> tuple[Any, Any]:
    for name in _SCHEMAS:
        try:
            return importlib.import_module(name), importlib.import_module("flatbuffers")
        except ImportError:
            continue
    raise MissingDependency(
        "giving values to the operators of a TensorFlow Lite model needs ai-edge-litert or tensorflow with "
        "flatbuffers: pip install 'nnpipe[litert]'"
    )
