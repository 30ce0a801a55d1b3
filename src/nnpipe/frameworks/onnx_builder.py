"""Small ONNX graphs with random weights, written node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_OPSET, _IR_VERSION = 20, 9


class ONNXBuilder:
    """Collects the nodes of a graph; every method that adds nodes returns the name of their result.

    Parameters
    ----------
    random
        Draws the weights.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, shape: Sequence[int], dtype: str = "float32") -> str:
        """Add an input."""
        from onnx import helper

        name = f"input_{len(self._inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int, mean: float = 0.0) -> str:
        """Add random numbers, small enough that values neither grow nor vanish from layer to layer."""
        spread = 1.0 / max(1.0, float(np.sqrt(np.prod(shape[1:]))))
        drawn = self.random.standard_normal(shape, np.float32) * np.float32(spread) + np.float32(mean)
        return self.constant(drawn.astype(np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node of a kind; of several outputs the first is returned, ``name_1`` is the second, and so on."""
        from onnx import helper

        number = len(self._nodes)
        results = [f"value_{number}"] + [f"value_{number}_{place}" for place in range(1, outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), results, f"node_{number}", **attributes))
        return results[0]

    def model(self, *outputs: str) -> bytes:
        """Return the content of a file with all nodes so far, whose outputs these are."""
        from onnx import ValueInfoProto, helper, shape_inference

        given = [ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, "network", self._inputs, given, self._constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="nnpipe")
        made.ir_version = _IR_VERSION
        content: bytes = shape_inference.infer_shapes(made).SerializeToString()
        return content
