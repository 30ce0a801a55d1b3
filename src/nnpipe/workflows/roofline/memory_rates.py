"""The bandwidth of memory by the amount of data, read without a call for each array.

Data that fit into the smallest cache are read in less time than a call takes.  So one call reads the same data many
times: the maximum along each row of a view whose rows all lie at the same place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

SIZES = tuple(round(2 ** (exponent / 2)) << 12 for exponent in range(2, 33))
"""Bytes, from 8 KiB to 256 MiB, by steps of the square root of two."""
_CALL_BYTES = 32 << 20


def bandwidth(size: int, threads: int, seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the bytes a second that are read from ``size`` bytes, in the fastest call within some time.

    Each thread has its own data, of an equal part of ``size``, and reads them at the same time as the others.
    """
    part = max(size // threads // 4, 64)
    rows = max(1, _CALL_BYTES // (4 * part))
    views = [
        np.lib.stride_tricks.as_strided(np.ones(part, np.int32), (rows, part), (0, 4), writeable=False)
        for _ in range(threads)
    ]
    best, end, calls = 0.0, clock() + seconds, 0
    while calls < 3 or clock() < end:
        start = clock()
        _read(views)
        best = max(best, threads * rows * part * 4 / max(clock() - start, 1e-9))
        calls += 1
    return best


def _read(views: list[np.ndarray]) -> None:
    others = [threading.Thread(target=np.maximum.reduce, args=(view,), kwargs={"axis": 1}) for view in views[1:]]
    for each in others:
        each.start()
    np.maximum.reduce(views[0], axis=1)
    for each in others:
        each.join()
