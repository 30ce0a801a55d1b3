"""The tensors that an exported PyTorch program takes, gives and holds, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.core.tensors import TensorSpec
from nnpipe.formats._pt2_check import MalformedFile
from nnpipe.formats._pt2_signature import Tree, argument_of, is_given, leaf_names

# ScalarType in torch/_export/serde/schema.py, with the bytes of one element.
DTYPES = {
    1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("float16", 2),
    7: ("float32", 4), 8: ("float64", 8), 12: ("bool", 1), 13: ("bfloat16", 2), 28: ("uint16", 2),
    34: ("uint32", 4), 35: ("uint64", 8),
}  # fmt: skip
# Those that tensors of numpy and of the other frameworks do not have, or not with the same meaning.
_COMPLEX = {9: "complex32", 10: "complex64", 11: "complex128"}
_FLOAT8 = {29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu"}


def tensors_of(what: str, specs: Sequence[Any], tree: Tree, values: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the specifications of the program's inputs or outputs; fixed values are left out."""
    arguments = [argument_of(spec) for spec in specs if is_given(spec)]
    names = list(leaf_names(tree))
    if len(names) != len(arguments):
        raise MalformedFile(f"{what} {len(arguments)} values in its graph and {len(names)} in its signature")
    found = [(name, argument) for name, argument in zip(names, arguments, strict=True) if argument is not None]
    if any("as_tensor" not in argument for _, argument in found):
        raise MalformedFile(f"{what} something that is no tensor")
    names = [name for name, _ in found]
    nodes = [argument["as_tensor"]["name"] for _, argument in found]
    if "" in names or len(set(names)) != len(names):
        names = [name if name and names.count(name) == 1 else node for name, node in zip(names, nodes, strict=True)]
    return tuple(_spec(name, values[node]) for name, node in zip(names, nodes, strict=True))


def _spec(name: str, meta: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(size.get("as_int") for size in meta["sizes"])
    return TensorSpec(name, shape, element_of(name, meta)[0])


def element_of(name: str, meta: Mapping[str, Any]) -> tuple[str, int]:
    """Return the element type of a weight, an input or an output, and the bytes of one element."""
    number = meta["dtype"]
    if number in _COMPLEX:
        raise MalformedFile(
            f"{name!r} holds complex numbers ({_COMPLEX[number]}), which are not supported here: export the model with "
            "torch.view_as_real of it, and make it complex inside with torch.view_as_complex"
        )
    if number in _FLOAT8:
        raise MalformedFile(f"{name!r} is {_FLOAT8[number]}, which is not supported here: export it as float32")
    return DTYPES[number]
