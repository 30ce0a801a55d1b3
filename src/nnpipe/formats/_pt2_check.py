"""Checks of the operators and strings in an exported PyTorch program, so that loading it runs no foreign code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN = re.compile(r"[A-Za-z0-9_.+-]*")
_OPERATOR = re.compile(r"torch\.ops\.(?:aten|quantized_decomposed)\.([A-Za-z0-9_]+)\.[A-Za-z0-9_]+")
_ARITHMETIC = frozenset(
    "_operator.getitem _operator.add _operator.sub _operator.mul _operator.floordiv _operator.truediv _operator.mod "
    "_operator.neg _operator.eq _operator.ne _operator.lt _operator.le _operator.gt _operator.ge _operator.and_ "
    "_operator.or_ _operator.not_ torch.sym_int torch.sym_float torch.sym_not torch.sym_max torch.sym_min "
    "torch.sym_ite torch.sym_sum math.floor math.ceil math.trunc".split()
)
# Operators that reach beyond tensors: to files, to the screen, or to foreign memory.  Of the operators named like
# Python's special methods only the bitwise ones are allowed: they compute on tensors.
_REACHING_OUT = re.compile(
    r"from_file|save|load|_print|set_|set_data|_test_.*|__(?!i?(?:and|or|xor|lshift|rshift)__$).*"
)
# PyTorch writes the lengths of axes as sympy expressions and evaluates them when it loads the file.
_LENGTH = re.compile(
    r"(?:Symbol\('[a-z]{1,4}\d{1,9}'|(?:positive|nonnegative|integer)=True|-?\d{1,19}|[(), ]"
    r"|Integer|Rational|Add|Mul|Max|Min|Mod|PythonMod|ModularIndexing|FloorDiv|CeilDiv|CleanDiv"
    r"|Pow(?=\(Symbol\([^()]*\), Integer\(\d\)\)))*"
)
_LONGEST_LENGTH = 500
_FORBIDDEN = frozenset({"as_graph", "as_operator", "as_custom_obj", "as_string_to_argument"})
_FREE_TEXT = frozenset({"as_string", "as_strings"})  # passed on as values, never as source code
_NAMES = frozenset({"name", "as_name"})


class MalformedFile(Exception):
    """An error that says what is wrong with a file, without the file's name."""


def check_target(target: Any) -> None:
    """Raise :class:`MalformedFile` unless ``target`` is an operator on tensors or arithmetic on lengths."""
    found = _OPERATOR.fullmatch(str(target))
    if (found and not _REACHING_OUT.fullmatch(found[1])) or target in _ARITHMETIC:
        return
    raise MalformedFile(f"calls {str(target)[:80]!r}, which is not an operator on tensors alone; it is not loaded")


def check_strings(value: Any, key: str = "") -> None:
    """Raise :class:`MalformedFile` for a string that PyTorch would not write and that may end up in source code."""
    if isinstance(value, Mapping):
        for inner, part in value.items():
            if inner in _FORBIDDEN:
                raise MalformedFile(f"uses {inner}, which is more than operators on tensors")
            if not PLAIN.fullmatch(inner):
                raise MalformedFile(f"holds the name {inner[:80]!r}, which PyTorch would not give")
            check_strings(part, inner)
    elif isinstance(value, (list, tuple)):
        for part in value:
            check_strings(part, key)
    elif isinstance(value, str) and key not in _FREE_TEXT:
        if key == "expr_str":
            fine = len(value) <= _LONGEST_LENGTH and _LENGTH.fullmatch(value)
        elif key in _NAMES:
            fine = IDENTIFIER.fullmatch(value)
        else:
            fine = PLAIN.fullmatch(value)
        if not fine:
            raise MalformedFile(f"holds {value[:80]!r} as {key}, which PyTorch would not write")
