"""Which operators of an ONNX graph to quantise: attention needs masks, softmax and normalisation in floats."""

from __future__ import annotations

from typing import Any

PRODUCTS = ("MatMul", "Gemm")
ATTENTION_TYPES = (*PRODUCTS, "Conv", "ConvTranspose", "Gather")
DYNAMIC_TYPES = (*PRODUCTS, "Attention", "LSTM", "Gather", "EmbedLayerNormalization")

_FUSED = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention"})
_PASSING = frozenset({"Cast", "Dropout", "Identity", "Mul", "Reshape", "Transpose", "Where"})


def has_attention(graph: Any) -> bool:
    """Return whether a matrix product takes the result of a softmax, or an operator computes attention whole.

    A mask of -3e38 in the range of a tensor leaves nothing of its other values when that is rounded to 8 bits.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto``; its nodes are in topological order.
    """
    weighed: set[str] = set()  # tensors that come from a softmax
    for node in graph.node:
        if node.op_type in _FUSED:
            return True
        if node.op_type == "Softmax" or (node.op_type in _PASSING and weighed.intersection(node.input)):
            weighed.update(node.output)
        elif node.op_type in ("MatMul", "Einsum") and weighed.intersection(node.input):
            return True
    return False


def added_biases(graph: Any) -> list[str]:
    """Return the names of Add nodes that only add a constant to a product of matrices with constant weights.

    Rounded before that, the sum would be rounded to nearly the same steps again, and a bias of less than half a step
    would have no effect at all.
    """
    constants = {constant.name for constant in graph.initializer}
    products = {
        node.output[0] for node in graph.node if node.op_type == "MatMul" and constants.intersection(node.input)
    }
    return [
        node.name
        for node in graph.node
        if node.op_type == "Add" and node.name
        if products.intersection(node.input) and constants.intersection(node.input)
    ]


def gathers_of_activations(graph: Any) -> list[str]:
    """Return the names of Gather nodes that pick from activations, which gain nothing from being rounded."""
    constants = {constant.name for constant in graph.initializer}
    return [node.name for node in graph.node if node.op_type == "Gather" and node.input[0] not in constants]
