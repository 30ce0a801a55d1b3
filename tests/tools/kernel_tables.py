"""A table of kernels whose times are known by a formula."""

from __future__ import annotations

import math

from nnpipe.analysis.kernel_table import KernelTable, MeasuredNetwork
from nnpipe.analysis.kernels import FusedKernel, FusionPattern


def kernel(channels: int, kind: str = "convolution") -> FusedKernel:
    """Return a convolution of 3 x 3 from and to this many channels at 100 positions."""
    macs, values = 900.0 * channels**2, 100.0 * channels
    shape = (100, channels, channels, 9, 1, 1, 1, 2, *[math.gcd(channels, 64)] * 3, 1e6)
    sizes = (
        macs,
        values,
        4 * values + 36 * channels**2,
        4 * values,
        9.0 * channels**2,
        values,
        *map(float, shape),
    )
    return FusedKernel(kind, ("relu",), sizes)


def table(errors: tuple[float, ...] = (0.1, -0.1, 0.05, -0.05)) -> KernelTable:
    """Return a table of 60 kernels, each of 1 µs and 50 ps for every multiply-accumulate."""
    kernels = (*(kernel(channels) for channels in range(8, 128, 2)), kernel(16, "relu"))
    ns = tuple(0.05 * each.macs + 1000 for each in kernels)
    networks = tuple(
        MeasuredNetwork((place, place + 1), ns[place] + ns[place + 1], e)
        for place, e in enumerate(errors)
    )
    patterns = (FusionPattern(("convolution", "relu"), ((), (0,))),)
    return KernelTable(
        "a board",
        "Runtime",
        "1.0",
        "float32",
        1,
        "2026-11-24T00:00:00+00:00",
        kernels,
        ns,
        patterns,
        5000.0,
        networks,
        {"": (-0.2, 0.3)},
    )
