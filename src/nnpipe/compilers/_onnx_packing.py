"""Constants of ONNX graphs in few bits, with nodes that unpack them.

The nodes are ONNX's own, gathered in functions of the model.  As all that they take is constant,
ONNX Runtime carries them out once, when it loads the model; afterwards, it computes as with the
unpacked weights.

A constant of at most ``2**b`` different values is a list of these values, the codebook, and a whole
number of ``b`` bits for each element.  These numbers are split into parts of 4, 2 and 1 bits, each
of which fills whole bytes.  Where many elements are 0, one bit for each element says where, and
only the others have numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

DOMAIN = "nnpipe.packed"
_VERSION = 1
_WIDTHS = (4, 2, 1)
_NODE_BYTES = 90  # of the nodes and shapes beside the numbers, about
_MOST_VALUES = 128  # that are worth a codebook

Array = npt.NDArray[Any]


@dataclass
class PackedConstants:
    """Packed constants of one model, with the nodes and functions that unpack them."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    _kinds: set[tuple[bool, int]] = field(default_factory=set)

    def add(self, name: str, places: Array, book: Array, sparse: bool) -> None:
        """Pack a constant.

        Parameters
        ----------
        name
            The tensor that the nodes compute.
        places
            The place in the codebook of each element, in the constant's shape.
        book
            The values; if ``sparse``, the first one is that of most elements, and is not stored for
            each of them.
        sparse
            Whether to store where the elements are that have other values than the first.
        """
        from onnx import helper

        numbers = places.reshape(-1)
        bits = count_bits(len(book) - sparse)
        inputs: list[str] = []
        if sparse:
            inputs.append(self._constant(f"{name}/mask", pack_numbers(numbers > 0, 1)))
            numbers = numbers[numbers > 0] - 1
        low = bits
        for width in split_bits(bits):
            low -= width
            inputs.append(
                self._constant(
                    f"{name}/bits{low}", pack_numbers((numbers >> low) & (2**width - 1), width)
                )
            )
        inputs.append(self._constant(f"{name}/book", book))
        inputs.append(self._constant(f"{name}/shape", np.array(places.shape, np.int64)))
        self._kinds.add((sparse, bits))
        self.nodes.append(
            helper.make_node(_format_function_name(sparse, bits), inputs, [name], domain=DOMAIN)
        )

    def add_listed(self, name: str, values: Array) -> None:
        """Store where a constant is not 0, and the values there, of which there may be many."""
        from onnx import helper

        flat = values.reshape(-1)
        inputs = [
            self._constant(f"{name}/mask", pack_numbers(flat != 0, 1)),
            self._constant(
                f"{name}/book", np.concatenate([np.zeros(1, flat.dtype), flat[flat != 0]])
            ),
            self._constant(f"{name}/shape", np.array(values.shape, np.int64)),
        ]
        self._kinds.add((True, 0))
        self.nodes.append(
            helper.make_node(_format_function_name(True, 0), inputs, [name], domain=DOMAIN)
        )

    def add_half(self, name: str, values: Array) -> None:
        """Store a constant of 32-bit floats in 16 bits."""
        from onnx import TensorProto, helper

        half = self._constant(f"{name}/half", values.astype(np.float16))
        self.nodes.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))

    def scale(self, name: str, units: str, scales: Array) -> None:
        """Let ``name`` be a tensor of whole numbers times scales that fit its shape, as 32-bit
        floats.
        """
        from onnx import TensorProto, helper

        self.nodes.append(
            helper.make_node("Cast", [units], [f"{units}/float"], to=TensorProto.FLOAT)
        )
        self.nodes.append(
            helper.make_node(
                "Mul", [f"{units}/float", self._constant(f"{name}/scales", scales)], [name]
            )
        )

    def functions(self, opset: int) -> Iterator[Any]:
        """Yield the functions that the nodes call."""
        for sparse, bits in sorted(self._kinds):
            yield _build_unpack_function(sparse, bits, opset)

    def _constant(self, name: str, values: Array) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def count_bits(values: int) -> int:
    """Return how many bits tell so many values apart, at least 1."""
    return max(1, math.ceil(math.log2(max(values, 1))))


def split_bits(bits: int) -> list[int]:
    """Return the widths of the parts of a number of so many bits, the highest part first.

    Examples
    --------
    >>> split_bits(7), split_bits(4)
    ([4, 2, 1], [4])
    """
    return [4] * (bits // 4) + [width for width in _WIDTHS[1:] if bits % 4 & width]


def pack_numbers(numbers: Array, width: int) -> npt.NDArray[np.uint8]:
    """Return numbers of so many bits in bytes, the first one in the lowest bits of the first byte.

    There are as many as eight numbers fill, so that all parts of numbers are equally many.
    """
    each = 8 // width
    padded = np.zeros(-(-len(numbers) // 8) * 8, np.uint8)
    padded[: len(numbers)] = numbers
    parts = padded.reshape(-1, each) << (np.arange(each, dtype=np.uint8) * width)
    found: npt.NDArray[np.uint8] = np.bitwise_or.reduce(parts.astype(np.uint8), axis=1)
    return found


def estimate_packed_bytes(places: Array, values: int, sparse: bool) -> int:
    """Return about how many bytes packed elements take, with their nodes."""
    numbers = int((places > 0).sum()) if sparse else places.size
    mask = -(-places.size // 8) if sparse else 0
    return (
        mask
        + sum(-(-numbers * width // 8) for width in split_bits(count_bits(values - sparse)))
        + values
        + _NODE_BYTES
    )


def estimate_sparse_bytes(values: Array) -> int:
    """Return about how many bytes a constant takes if only elements that are not 0 are stored,
    with its nodes.
    """
    return int(
        -(-values.size // 8) + values.itemsize * (np.count_nonzero(values) + 1) + _NODE_BYTES
    )


def find_lossless_packing(values: Array) -> tuple[Array, Array, bool] | None:
    """Return places, codebook and whether zeros are left out, if an array is smaller so; None if
    it is not.
    """
    book, places = np.unique(values, return_inverse=True)
    if len(book) > _MOST_VALUES:
        return None
    places = places.reshape(values.shape)
    ways = [(estimate_packed_bytes(places, len(book), False), places, book, False)]
    zero = np.flatnonzero(book == 0)
    if len(zero) and len(book) > 1:
        order = np.concatenate([zero, np.delete(np.arange(len(book)), zero)])
        moved = np.argsort(order)[places]
        ways.append((estimate_packed_bytes(moved, len(book), True), moved, book[order], True))
    best = min(ways, key=lambda way: way[0])
    return best[1:] if best[0] < values.nbytes else None


def _format_function_name(sparse: bool, bits: int) -> str:
    return f"{'Sparse' if sparse else 'Dense'}{bits}"


def _build_unpack_function(sparse: bool, bits: int, opset: int) -> Any:
    """Return the function that unpacks numbers of so many bits; it takes the parts, the codebook
    and the shape.

    With no bits, each element that is not 0 has a value of its own in the codebook, in order.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []

    def add_node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def add_constant(output: str, values: Array) -> str:
        return add_node("Constant", [], output, value=numpy_helper.from_array(values))

    def unpack(name: str, width: int) -> str:
        shifts = add_constant(f"{name}s", np.arange(0, 8, width, dtype=np.uint8))
        rows = add_node("Unsqueeze", [name, axis], f"{name}u")
        shifted = add_node("BitShift", [rows, shifts], f"{name}b", direction="RIGHT")
        whole = add_node(
            "Mod", [shifted, add_constant(f"{name}m", np.array(2**width, np.uint8))], f"{name}r"
        )
        return add_node(
            "Reshape",
            [add_node("Cast", [whole], f"{name}c", to=TensorProto.INT32), axis],
            f"{name}f",
        )

    axis, zero = (
        add_constant("ax", np.array([-1], np.int64)),
        add_constant("z", np.array([0], np.int64)),
    )
    count = add_node("ReduceProd", ["shape"], "n", keepdims=1)
    total, low = "", bits
    parts = [f"p{number}" for number in range(len(split_bits(bits)))]
    for name, width in zip(parts, split_bits(bits), strict=True):
        low -= width
        part = unpack(name, width)
        if low:
            part = add_node(
                "Mul", [part, add_constant(f"{name}w", np.array(2**low, np.int32))], f"{name}x"
            )
        total = add_node("Add", [total, part], f"{name}t") if total else part
    if sparse:
        there = add_node("Slice", [unpack("mask", 1), zero, count], "there")
        one = add_constant("one", np.array(1, np.int32))
        own = add_node("CumSum", [there, add_constant("a0", np.array(0, np.int64))], "sum")
        if bits:
            at = add_node(
                "Max",
                [add_node("Sub", [own, one], "before"), add_constant("i0", np.array(0, np.int32))],
                "at",
            )
            own = add_node("Add", [add_node("Gather", [total, at], "own"), one], "own1")
        total = add_node("Mul", [there, own], "places")
    else:
        total = add_node("Slice", [total, zero, count], "places")
    add_node("Reshape", [add_node("Gather", ["book", total], "flat"), "shape"], "out")
    inputs = [*(["mask"] if sparse else []), *parts, "book", "shape"]
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function(
        DOMAIN, _format_function_name(sparse, bits), inputs, ["out"], nodes, imports
    )


_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def slim_onnx_model(model: Any) -> None:
    """Shorten an ``onnx.ModelProto`` in place; names of its inputs and outputs are kept.

    Models with graphs inside nodes keep all names.
    """
    graph = model.graph
    for message in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        message.ClearField("doc_string")
    del graph.value_info[:]
    del model.metadata_props[:]
    used = {node.domain if node.domain != "ai.onnx" else "" for node in graph.node} | {""}
    kept = [each for each in model.opset_import if each.domain in used or each.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    if any(
        attribute.HasField("g") or attribute.graphs
        for node in graph.node
        for attribute in node.attribute
    ):
        return
    _merge_constants(graph)
    _shorten_names(graph)


def _merge_constants(graph: Any) -> None:
    """Keep one of each set of equal constants."""
    first: dict[bytes, str] = {}
    instead: dict[str, str] = {}
    given = {value.name for value in (*graph.input, *graph.output)}
    kept = []
    for constant in graph.initializer:
        name = constant.name
        constant.name = ""
        content = constant.SerializeToString(deterministic=True)
        constant.name = name
        if name in given or first.setdefault(content, name) == name:
            kept.append(constant)
        else:
            instead[name] = first[content]
    if not instead:
        return
    copies = [type(each).FromString(each.SerializeToString()) for each in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
    for node in graph.node:
        node.input[:] = [instead.get(name, name) for name in node.input]


def _shorten_names(graph: Any) -> None:
    """Name nodes after their results, and give every tensor inside the shortest name that is
    left.
    """
    taken = {value.name for value in (*graph.input, *graph.output)} | {""}
    fresh = (name for name in _generate_names() if name not in taken)
    short: dict[str, str] = {name: name for name in taken}
    for node in graph.node:
        node.ClearField("name")
        for side in (node.input, node.output):
            side[:] = [
                short[name] if name in short else short.setdefault(name, next(fresh))
                for name in side
            ]
    for constant in graph.initializer:
        constant.name = (
            short[constant.name]
            if constant.name in short
            else short.setdefault(constant.name, next(fresh))
        )
    graph.name = "g"


def _generate_names() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product(_DIGITS, repeat=length))
