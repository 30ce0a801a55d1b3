"""Networks with one planted fault each, of which :mod:`explained_faults` says whether
``explain`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HANDED_ON = {"Relu", "LeakyRelu", "Clip", "MaxPool", "AveragePool", "BatchNormalization"}
"""Operators that keep channels apart and give a positive multiple of a channel that same
multiple.
"""

IMBALANCE = (100.0, 1000.0)  # how many times as large some channels are
CLIPPED = (0.06, 0.2)  # the share of an activation's range that is left
OUTLIER = (50.0, 200.0)  # a weight, in the greatest ones of its layer
SCALES = (0.5, 0.7, 1.5, 2.0)
# ONNX Runtime multiplies matrices of these without vector instructions
SLOW = ("uint32", "int32", "int64")


@dataclass(frozen=True)
class Planted:
    """A model with a fault, the model that it is compared with (none for a slow one), and the
    names that count.
    """

    kind: str
    path: Path
    source: Path | None
    culprits: frozenset[str]


def numbered(path: Path, to: Path) -> Path:
    """Write a model whose nodes have short names, none of which is part of another."""
    import onnx

    model = onnx.load_model(str(path))
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number:03d}_"
    onnx.save_model(model, str(to))
    return to


class Network:
    """A file of ONNX whose weights and scales can be read and changed."""

    def __init__(self, path: Path) -> None:
        import onnx

        self.model = onnx.load_model(str(path))
        self.graph = self.model.graph
        self.stored = {each.name: each for each in self.graph.initializer}
        self.readers: dict[str, list[Any]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.makers = {name: node for node in self.graph.node for name in node.output}

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Return a stored tensor."""
        from onnx import numpy_helper

        return np.array(numpy_helper.to_array(self.stored[name]))

    def change(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Store a tensor anew."""
        from onnx import numpy_helper

        self.stored[name].CopyFrom(
            numpy_helper.from_array(array.astype(self.array(name).dtype), name)
        )

    def save(self, path: Path) -> Path:
        """Write the file."""
        import onnx

        onnx.save_model(self.model, str(path))
        return path

    def weighted(self, *kinds: str) -> list[Any]:
        """Return the nodes of these kinds whose second input is stored."""
        return [
            node
            for node in self.graph.node
            if node.op_type in kinds and node.input[1] in self.stored
        ]

    def chains(self) -> Iterator[list[Any]]:
        """Yield each way from a convolution to the next one along which channels stay apart."""
        outputs = {each.name for each in self.graph.output}
        for first in self.weighted("Conv"):
            chain = [first]
            while True:
                name = chain[-1].output[0]
                if name in outputs or len(self.readers.get(name, ())) != 1:
                    break
                chain.append(self.readers[name][0])
                if chain[-1].op_type not in HANDED_ON:
                    break
            ends = (
                chain[-1].op_type == "Conv" and len(chain) > 1 and chain[-1].input[1] in self.stored
            )
            # a fixed limit is no multiple
            if ends and not any(node.op_type == "Clip" for node in chain):
                yield chain


def imbalanced(path: Path, to: Path, random: np.random.Generator) -> Planted | None:
    """Make three channels of a layer far larger, and the weights that read them as much smaller."""
    network = Network(path)
    chains = list(network.chains())
    if not chains:
        return None
    chain = chains[random.integers(len(chains))]
    norms = [node for node in chain if node.op_type == "BatchNormalization"]
    last = norms[-1] if norms else chain[0]
    names = [name for name in last.input[1:3] if name]
    channels = len(network.array(names[0]))
    some, factor = (
        random.choice(channels, min(3, channels // 2), replace=False),
        random.uniform(*IMBALANCE),
    )
    for name in names:
        array = network.array(name)
        array[some] *= factor
        network.change(name, array)
    after = chain[-1].input[1]
    weights = network.array(after)
    if weights.shape[1] == channels:
        weights[:, some] /= factor
    else:
        weights[some] /= factor  # a depthwise convolution
    network.change(after, weights)
    return Planted("imbalance", to, network.save(to), frozenset(node.name for node in chain[:-1]))


def outlier(path: Path, to: Path, random: np.random.Generator) -> Planted | None:
    """Make one weight so large that a scale for the whole layer leaves nothing of the others."""
    network = Network(path)
    node = (nodes := network.weighted("Conv", "Gemm"))[random.integers(len(nodes))]
    weights = network.array(node.input[1])
    if weights.ndim == 4 and weights.shape[1] == 1:
        return None  # a depthwise kernel has a channel of its own
    place = tuple(random.integers(length) for length in weights.shape)
    weights[place] = np.abs(weights).max() * random.uniform(*OUTLIER)
    network.change(node.input[1], weights)
    return Planted("outlier", to, network.save(to), frozenset({node.name}))


def clipped(path: Path, to: Path, random: np.random.Generator) -> Planted | None:
    """Leave a part of the range of an activation in an integer model."""
    network = Network(path)
    nodes = [
        node
        for node in network.weighted("QuantizeLinear")
        if node.input[0] in network.makers
        and network.makers[node.input[0]].op_type in ("Conv", "Relu", "Add", "LeakyRelu", "Sigmoid")
    ]
    if not nodes:
        return None
    node = nodes[random.integers(len(nodes))]
    network.change(node.input[1], network.array(node.input[1]) * random.uniform(*CLIPPED))
    return Planted(
        "clipped range",
        network.save(to),
        None,
        frozenset(_short(each.name) for each in _layer(network, node.input[0])),
    )


def scaled(path: Path, to: Path, random: np.random.Generator) -> Planted | None:
    """Give the weights of one layer of an integer model another scale."""
    network = Network(path)
    found = []
    for node in network.graph.node:
        maker = (
            network.makers.get(node.input[1])
            if node.op_type in ("Conv", "Gemm", "MatMul")
            else None
        )
        if (
            maker is not None
            and maker.op_type == "DequantizeLinear"
            and maker.input[0] in network.stored
        ):
            found.append((node, maker.input[1]))
    if not found:
        return None
    node, scale = found[random.integers(len(found))]
    network.change(scale, network.array(scale) * random.choice(SCALES))
    return Planted("wrong scale", network.save(to), None, frozenset({_short(node.name)}))


def _layer(network: Network, tensor: str) -> Iterator[Any]:
    """Yield the node that computes a tensor, and those that are fused with it before it."""
    while tensor in network.makers:
        node = network.makers[tensor]
        yield node
        if node.op_type not in {*HANDED_ON, "Add"}:
            break
        tensor = node.input[0]


def _short(name: str) -> str:
    """Return the name that :func:`numbered` gave, without what a compiler has added."""
    return name.partition("/")[0]


def slow(to: Path, random: np.random.Generator) -> Planted:
    """Write a network of matrix products, of which one has numbers that its runtime multiplies
    one by one.
    """
    place, depth = int(random.integers(2, 8)), int(random.integers(9, 15))
    return Planted(
        "slow operation",
        products(to, random, depth, place),
        None,
        frozenset({f"MatMul_{place:03d}_"}),
    )


def products(to: Path, random: np.random.Generator, depth: int, slow: int | None) -> Path:
    """Write a network of matrix products, of which one may be in whole numbers."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    width, rows = int(random.choice([64, 96, 128, 160])), int(random.choice([32, 48, 64, 96]))
    nodes, stored, name = [], [], "x"
    for number in range(depth):
        weights = random.normal(0, np.sqrt(2 / width), (width, width)).astype(np.float32)
        product = f"MatMul_{number:03d}_"
        if number == slow:
            kind = str(random.choice(SLOW))
            stored.append(numpy_helper.from_array((8 * weights).astype(kind), f"w{number}"))
            whole = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            nodes += [
                helper.make_node("Cast", [name], [f"a{number}"], f"To_{number:03d}_", to=whole),
                helper.make_node("MatMul", [f"a{number}", f"w{number}"], [f"b{number}"], product),
                helper.make_node(
                    "Cast",
                    [f"b{number}"],
                    [f"c{number}"],
                    f"Back_{number:03d}_",
                    to=TensorProto.FLOAT,
                ),
            ]
        else:
            stored.append(numpy_helper.from_array(weights, f"w{number}"))
            nodes.append(helper.make_node("MatMul", [name, f"w{number}"], [f"c{number}"], product))
        nodes.append(
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"Relu_{number:03d}_")
        )
        name = f"r{number}"
    sides = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n", rows, width])
        for each in ("x", name)
    ]
    graph = helper.make_graph(nodes, "products", sides[:1], sides[1:], stored)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(to)
    )
    return to


IN_FLOATS: tuple[Callable[[Path, Path, np.random.Generator], Planted | None], ...] = (
    imbalanced,
    outlier,
)
IN_INTEGERS: tuple[Callable[[Path, Path, np.random.Generator], Planted | None], ...] = (
    clipped,
    scaled,
)
