"""Show messages of other programs, and values, in one line."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from nnpipe.core.foreign_text import sanitize_text
from nnpipe.core.secret import hide_secrets

LOCKED = "another program has it open for writing; try again when that has ended, or take a copy"
"""What is wrong with a file that HDF5 cannot lock."""

# What says where a library noticed a fault in its own code, not what is wrong.
_PLACES = ("Exception from ", "Check '", "Traceback ", 'File "')
_PREFIX = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?|^\S+:\d+(:\d+)?: error: "
    r"(loc\(.*\): )?"
)


def format_one_line(error: object, limit: int = 300) -> str:
    """Return an error's message, or a text, as one harmless line of at most ``limit`` characters.

    Codes that a library puts before its message are left out.

    Examples
    --------
    >>> format_one_line("a report\\n  of several lines")
    'a report of several lines'
    >>> format_one_line(KeyError())
    'KeyError'
    >>> format_one_line(KeyError("weight"))
    "KeyError: 'weight'"
    >>> format_one_line(RuntimeError("[ONNXRuntimeError] : 1 : FAIL : Load model from a.onnx failed:no operator Foo"))
    'no operator Foo'
    >>> format_one_line("a report of several lines", 10)
    'a report …'
    """
    text = " ".join(_PREFIX.sub("", sanitize_text(str(error))).split()) or type(error).__name__
    if isinstance(error, KeyError) and error.args:  # its message is the key alone
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def format_value(value: object) -> str:
    """Return a value as a message shows it: as Python writes it, and not for long."""
    text = hide_secrets(repr(value))
    return text if len(text) <= 60 else text[:59] + "…"


def format_library_error(
    library: str,
    error: object,
    nodes: Mapping[str, str] = MappingProxyType({}),
    advice: str = "",
    action: str = "",
) -> str:
    """Return an error of a library as one line: what it was doing, to which node, its own words,
    and what to try.

    Parameters
    ----------
    library
        The name of the library.
    error
        What it raised.
    nodes
        The kinds of the model's nodes, by their names and those of what they compute.
    advice
        What to try.
    action
        What it was to do with the model, such as ``load it``.  Compilers, which do one thing, fail;
        of their reports, which may be long, the first line is taken.

    Examples
    --------
    >>> error = ValueError("<unknown>:0: error: loc(fused): 'tf.Foo' op of gate/3 is no operator\\nnote: called from")
    >>> format_library_error("TensorFlow", error, {"gate/3": "Foo"}, "leave it out")
    "TensorFlow fails at Foo 'gate/3': 'tf.Foo' op of gate/3 is no operator; leave it out"
    >>> format_library_error("ONNX Runtime", ValueError("no kernel for gate/3"), {"gate/3": "Foo"}, action="load it")
    "ONNX Runtime cannot load it at Foo 'gate/3': no kernel for gate/3"
    """
    text = str(error)
    named = (
        name
        for name in nodes
        if name and re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./])", text)
    )
    place = max(named, key=len, default="")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(_PLACES)] or lines
    if isinstance(error, KeyError) or not own:
        told = format_one_line(error)
    else:
        told = format_one_line(" ".join(own), 500) if action else format_one_line(own[0])
    doing = f"cannot {action}" if action else "fails"
    where = f" at {nodes[place]} {place!r}" if place else ""
    return f"{library} {doing}{where}: {told}{f'; {advice}' if advice else ''}"


_MOST = 20  # names that are listed


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known name closest to ``name``, or an empty string.

    The last part of a dotted name counts as much as the whole, so that a class
    that moved to another module is still found.
    """
    candidates = list(known)
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    last = name.rpartition(".")[2]
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    closest_last = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    if closest_last and (not found or closest_last[0] == last):
        found = [by_last[closest_last[0]]]
    return f"; did you mean {found[0]}?" if found else ""


def list_names(names: Sequence[str]) -> str:
    """Return names separated by commas, the first ones of many."""
    return ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")


def to_snake_case(name: str) -> str:
    """Convert a class name to the style of Keras layer names: ``max_pooling2d`` for
    ``MaxPooling2D``.
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def docstring_summary(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line; an empty string without one."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
