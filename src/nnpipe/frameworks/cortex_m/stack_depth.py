"""How much stack a function needs, from the call graph that GCC writes with ``-fcallgraph-info=su``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAKED = {"nn_add_products": 40, "nn_add_rows": 40}
"""Bytes that functions in assembly push, for which GCC states no frame."""

_FRAME = re.compile(r'title: "([^"]+)" label: "[^"]*\\n(\d+) bytes')
_CALL = re.compile(r'sourcename: "([^"]+)" targetname: "([^"]+)"')


def stack_depth(graphs: Iterable[str], root: str = "nn_run") -> int:
    """Return the bytes of stack of the deepest chain of calls from a function.

    Functions for which no graph states a frame count as 0, such as those of GCC's own library.

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
            own = next((size for word, size in _NAKED.items() if word in name), frames.get(name, 0))
            depths[name] = own + max(map(depth, called.get(name, ())), default=0)
        return depths[name]

    return depth(root)
