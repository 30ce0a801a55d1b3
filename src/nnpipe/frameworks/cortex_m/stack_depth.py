"""How much stack a function needs, from the call graph that GCC writes with ``-fcallgraph-info=su``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAKED = {"nn_add_products": 40, "nn_add_rows": 40}
"""Bytes that functions in assembly push, for which GCC states no frame."""

_LIBRARY = {
    "__aeabi_fcmp": 32, "__aeabi_dcmp": 20, "__aeabi_dadd": 12, "__aeabi_dsub": 12, "__aeabi_dmul": 16,
    "__aeabi_ddiv": 16, "__aeabi_i2d": 12, "__aeabi_ui2d": 12, "__aeabi_l2d": 12, "__aeabi_ul2d": 12, "__aeabi_f2d": 12,
    "__aeabi_ldivmod": 48, "__aeabi_uldivmod": 48, "__aeabi_f2lz": 60, "__aeabi_d2lz": 68, "__aeabi_f2ulz": 68,
    "__aeabi_d2ulz": 68,
}  # fmt: skip
"""Bytes that functions of GCC's library use with what they call, by the beginning of their names, as GCC 12 has them
for cores without a floating-point unit; those of sums and products of single precision use none."""

_FRAME = re.compile(r'title: "([^"]+)" label: "[^"]*\\n(\d+) bytes')
_CALL = re.compile(r'sourcename: "([^"]+)" targetname: "([^"]+)"')


def stack_depth(graphs: Iterable[str], root: str = "nn_run") -> int:
    """Return the bytes of stack of the deepest chain of calls from a function.

    Functions of which nothing is known count as 0.

    Parameters
    ----------
    graphs
        The contents of ``.ci`` files, one for each translation unit.
    root
        The function that is called first.

    Examples
    --------
    >>> frame = 'node: { title: "%s" label: "%s\\\\nm.c:1:1\\\\n%d bytes (static)" }'
    >>> call = 'edge: { sourcename: "nn_run" targetname: "m.c:add" label: "m.c:3:1" }'
    >>> stack_depth(["\\n".join([frame % ("nn_run", "nn_run", 8), frame % ("m.c:add", "add", 16), call])])
    24
    """
    frames: dict[str, int] = {}
    called: dict[str, set[str]] = {}
    for graph in graphs:
        frames.update((title, int(size)) for title, size in _FRAME.findall(graph))
        for source, target in _CALL.findall(graph):
            called.setdefault(source, set()).add(target)
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in depths:
            depths[name] = 0  # a function that calls itself would have no end
            own = next((size for word, size in (_NAKED | _LIBRARY).items() if word in name), frames.get(name, 0))
            depths[name] = own + max(map(depth, called.get(name, ())), default=0)
        return depths[name]

    return depth(root)
