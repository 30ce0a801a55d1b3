"""Graphs of about 100 nodes, and a compiler with a fault in one of its rewrites, for ``reduce``
to find.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnpipe.compilers import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

Structure = Literal["conv", "attention", "branches"]


class PlantedFault(WritingCompiler):
    """Copies an ONNX model, and goes wrong where certain operators follow each other."""

    accepts, produces, suffix = ("onnx",), "onnx", ".onnx"

    fault: Literal[
        "none", "swap", "attribute", "drop", "scale", "nan", "raise", "abort", "hang"
    ] = argument("none", help="what goes wrong")
    node: str = argument(
        "", help="name of the node that it goes wrong on; empty for the first that fits"
    )
    pattern: str = argument(
        "", help="types of operators, joined by >, of which each must feed the next"
    )

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx

        model = onnx.load_model(str(artifact.path))
        found = self._found(model.graph)
        if found is None or self.fault == "none":
            shutil.copyfile(artifact.path, destination)
            return artifact.io
        if self.fault == "raise":
            raise ValueError(f"no rule rewrites {found.op_type} {found.name!r} of the model")
        if self.fault == "abort":
            os.abort()
        while self.fault == "hang":
            time.sleep(1)
        _damage(model.graph, found, self.fault)
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)

    def _found(self, graph: Any) -> Any:
        """Return the last node of the pattern where it occurs, or ``None``."""
        makers = {name: node for node in graph.node for name in node.output}
        wanted = self.pattern.split(">")[::-1]
        for node in graph.node:
            if self.node in ("", node.name) and _follows(node, wanted, makers):
                return node
        return None


def _follows(node: Any, wanted: list[str], makers: dict[str, Any]) -> bool:
    if wanted[0] not in ("", node.op_type):
        return False
    if len(wanted) == 1:
        return True
    return any(name in makers and _follows(makers[name], wanted[1:], makers) for name in node.input)


def _damage(graph: Any, node: Any, fault: str) -> None:
    import onnx

    if fault == "swap":
        node.input[0], node.input[1] = node.input[1], node.input[0]
    elif fault == "attribute":
        changed = {
            "LeakyRelu": ("alpha", 0.9),
            "LayerNormalization": ("epsilon", 5.0),
            "Softmax": ("axis", 1),
        }
        name, value = changed[node.op_type]
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])
    elif fault == "drop":
        replaced, by = node.output[0], node.input[0]
        node.CopyFrom(onnx.helper.make_node("Identity", [by], [replaced], node.name))
    else:  # what it gives is multiplied
        factor = {"scale": 3.0, "nan": np.nan}[fault]
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "planted.factor"))
        given, place = node.output[0], list(graph.node).index(node)
        node.output[0] = "planted.before"
        graph.node.insert(
            place + 1, onnx.helper.make_node("Mul", ["planted.before", "planted.factor"], [given])
        )


class _Builder:
    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._random = np.random.default_rng(seed)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        import onnx

        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self._random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: Any) -> str:
        import onnx

        name = f"weight_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(self, x: str, channels: int = 8, kernel: int = 3) -> str:
        weight = self.weight(
            channels, channels, kernel, kernel, scale=(channels * kernel * kernel) ** -0.5
        )
        return self.add("Conv", x, weight, self.weight(channels, scale=0.1), pads=[kernel // 2] * 4)

    def dense(self, x: str, width: int) -> str:
        return self.add(
            "Add",
            self.add("MatMul", x, self.weight(width, width, scale=width**-0.5)),
            self.weight(width),
        )

    def norm(self, x: str, width: int) -> str:
        return self.add(
            "LayerNormalization", x, self.weight(width), self.weight(width, scale=0.1), axis=-1
        )


def write_graph(path: Path, structure: Structure, nodes: int = 100, seed: int = 0) -> Path:
    """Write a graph of at least so many nodes and return its path; its nodes have unique names."""
    import onnx

    made, x = _Builder(seed), "x"
    shape = [1, 12, 16] if structure == "attention" else [1, 8, 10, 10]
    block = {"conv": _residual, "attention": _attention, "branches": _branches}[structure]
    while len(made.nodes) < nodes:
        x = block(made, x)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        made.nodes,
        structure,
        [value("x", 1, ["samples", *shape[1:]])],
        [value(x, 1, ["samples", *shape[1:]])],
        made.constants,
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save_model(model, str(path))
    return path


def _residual(made: _Builder, x: str) -> str:
    y = made.add("Relu", made.conv(x))
    y = made.add("LeakyRelu", made.conv(y), alpha=0.1)
    return made.add("Tanh", made.add("Add", x, made.conv(y, kernel=1)))


def _attention(made: _Builder, x: str) -> str:
    y = made.norm(x, 16)
    heads = made.constant(np.array([0, 12, 2, 8], np.int64))
    q, k, v = (made.add("Reshape", made.dense(y, 16), heads) for _ in range(3))
    q, v = (made.add("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
    scores = made.add("MatMul", q, made.add("Transpose", k, perm=[0, 2, 3, 1]))
    scores = made.add("Softmax", made.add("Div", scores, made.constant(np.float32(2.8))), axis=-1)
    y = made.add("Transpose", made.add("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = made.add("Reshape", y, made.constant(np.array([0, 12, 16], np.int64)))
    return made.add("Add", x, made.dense(y, 16))


def _branches(made: _Builder, x: str) -> str:
    one, two = (
        made.add("Sigmoid", made.conv(x)),
        made.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
    )
    three = made.add("Sub", made.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4), two)
    joined = made.add("Concat", one, three, axis=1)
    mixed = made.add("Conv", joined, made.weight(8, 16, 1, 1, scale=0.25))
    return made.add("Tanh", made.add("Mul", mixed, made.add("Exp", made.add("Neg", one))))


FAULTS: tuple[tuple[Structure, str, str, str], ...] = (
    ("conv", "scale", "Conv", "conv_21"),
    ("conv", "attribute", "Relu>Conv>LeakyRelu", ""),
    ("conv", "drop", "Conv>Relu", "relu_43"),
    ("conv", "nan", "Add>Tanh", "tanh_76"),
    ("conv", "raise", "Conv>Add", "add_47"),
    ("conv", "abort", "LeakyRelu", "leakyrelu_59"),
    ("conv", "hang", "Conv>Relu", "relu_36"),
    ("attention", "attribute", "LayerNormalization", "layernormalization_22"),
    ("attention", "attribute", "Div>Softmax", "softmax_59"),
    ("attention", "swap", "Div", "div_36"),
    ("attention", "scale", "MatMul>Transpose", ""),
    ("attention", "nan", "Softmax>MatMul", ""),
    ("attention", "raise", "Reshape>Transpose", ""),
    ("attention", "abort", "MatMul>Div>Softmax", ""),
    ("attention", "hang", "Softmax", "softmax_81"),
    ("branches", "swap", "AveragePool>Sub", "sub_103"),
    ("branches", "drop", "Sub", "sub_92"),
    ("branches", "swap", "Concat", "concat_71"),
    ("branches", "abort", "Concat>Conv", ""),
    ("branches", "raise", "Neg>Exp", "exp_85"),
)
"""Twenty faults: a structure, what goes wrong, on which operators, and on which node (empty: the
first that fits).
"""
