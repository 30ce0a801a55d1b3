"""What numbers a compiled file holds, read from the file and not taken from the compiler that wrote it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

from nnpipe.compilers._onnx_packing import DOMAIN
from nnpipe.core.claims import Claim
from nnpipe.core.errors import CompileError
from nnpipe.formats.onnx_contents import Contents, read_contents
from nnpipe.formats.pt2 import read_program
from nnpipe.formats.tflite_names import operator_name
from nnpipe.formats.tflite_program import read_program as read_tflite_program

_BYTES, _HALVES = ("int8", "uint8"), ("int4", "uint4")
_TYPES: Mapping[Claim, tuple[str, ...]] = {
    "float16": ("float16",), "bfloat16": ("bfloat16",), "int8-weights": _BYTES, "int8": _BYTES, "int4-weights": _HALVES,
}  # fmt: skip
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_KNOWN = (*_FLOATS, *_BYTES, *_HALVES)
_IN_BLOCKS = "com.microsoft.MatMulNBits"  # its packed weights have any number of bits
_PACKED = re.compile(rf"{re.escape(DOMAIN)}\.\D*(\d+)")  # a node that unpacks weights says how many bits they have
_OPENVINO = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8",
    "i4": "int4", "u4": "uint4",
}  # fmt: skip


def check_claimed_numbers(path: Path, format: str, claims: Iterable[Claim], lowers: str) -> None:
    """Check that a file just written has numbers of the precision that is claimed of it.

    Parameters
    ----------
    path, format
        The file.
    claims
        What is claimed.
    lowers
        Whose precision the compiler lowers, for the message; empty for all.

    Raises
    ------
    CompileError
        If it has none, as where a quantiser found nothing that it could quantise.
    """
    wanted = [claim for claim in claims if claim in _TYPES]
    if not wanted or format not in _READERS:
        return
    found = _READERS[format](path)
    for claim in wanted:
        if not _holds(found, claim):
            known = [(kind, count) for kind, count in found.numbers.most_common() if kind in _KNOWN and count]
            held = ", ".join(f"{count:,} {kind}" for kind, count in known)
            reason = f"its weights are {held}, and stay so" if held else "it has no weights"
            only = f"; only {lowers} would" if held and lowers else ""
            raise CompileError(f"nothing in it would become {claim.partition('-')[0]}: {reason}{only}")


def has_weights_of_8_bits(path: Path, format: str) -> bool:
    """Return whether weights in a file are integers of 8 bits."""
    return any(_READERS[format](path).matrices[kind] for kind in _BYTES)


def _holds(found: Contents, claim: Claim) -> bool:
    types = _TYPES[claim]
    if any(found.matrices[kind] for kind in types) or found.operations[_IN_BLOCKS]:
        return True
    packed = [int(named[1]) for kind in found.operations if (named := _PACKED.fullmatch(kind))]
    if claim.endswith("weights") and any(0 < bits <= (4 if types is _HALVES else 8) for bits in packed):
        return True
    if not set(types).isdisjoint(_FLOATS) and any(found.numbers[kind] for kind in types):
        return True
    if claim.endswith("weights") or any(found.matrices[kind] for kind in _FLOATS):
        return False
    # Without weights to judge by, as in a network of poolings, it is values that are converted.
    wanted, other = ("quantize", "dequantize") if claim == "int8" else ("cast", " ")
    return any(wanted in kind.lower() and other not in kind.lower() for kind in found.operations)


def _of_tflite(path: Path) -> Contents:
    program, found = read_tflite_program(path), Contents()
    found.operations.update(operator_name(each.code) for each in program.operators)
    for tensor in program.tensors:
        if tensor is not None and tensor.content is not None:
            found.count(tensor.spec.dtype, tensor.shape)
        elif tensor is not None and tensor.spec.dtype in _BYTES and tensor.spec.scale is not None:
            found.operations["QUANTIZE"] += 1  # where inputs are integers, no operator says so
    return found


def _of_openvino(path: Path) -> Contents:
    found = Contents()
    with zipfile.ZipFile(path) as archive:
        layers = ElementTree.fromstring(archive.read("model.xml")).iter("layer")
    for layer in layers:
        data, kind = layer.find("data"), layer.get("type", "")
        if kind != "Const" or data is None:
            found.operations[kind] += 1
            continue
        dtype = data.get("element_type", "")
        extents = [int(each) for each in data.get("shape", "").split(",") if each.strip()]
        found.count(_OPENVINO.get(dtype, dtype), extents)
    return found


_READERS: Mapping[str, Callable[[Path], Contents]] = {
    "onnx": read_contents, "tflite": _of_tflite, "openvino": _of_openvino,
    "torch-export": lambda path: read_program(path).contents(),
}  # fmt: skip
