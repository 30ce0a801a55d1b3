"""The times of a model's operations in the runtime that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.graph import Profile, Timing

Nanoseconds = npt.NDArray[np.float64]

SHORTEST_NS = 200_000
"""Shorter runs are not divided reliably: the recording costs about a microsecond for each
operation.
"""
DEAREST = 0.2
"""The greatest share by which recording may lengthen a run whose parts are to be relied on."""


@dataclass(frozen=True, eq=False)
class KernelTime:
    """What a runtime did in one step of a run, and the time that it took.

    Parameters
    ----------
    name
        The runtime's name of the step, unique in a profile.
    kind
        The operator, in the runtime's word: ``"Conv"``, ``"Reorder"``.
    ns
        Nanoseconds in each run, ``(runs,)``.
    kernel
        The implementation that ran, if the runtime tells it: ``"brgconv_avx512_dw_f32"``.
    precision
        The type of the numbers that it computed with: ``"float32"``, ``"int8"``; empty if it is not
        told.
    sources
        Names of operations of the model, or of tensors that they compute, which the runtime gives
        as its origin.
    after
        Names of the steps whose results it reads, if the runtime tells them.
    computes
        What it mainly computes, as a kind of :mod:`nnpipe.core.primitives` (any convolution is
        ``"convolution"``, and ``"product"`` is one or a matrix product), or a function such as
        ``"add"``; it tells operations apart where names do not.
    """

    name: str
    kind: str
    ns: Nanoseconds = field(repr=False)
    kernel: str = ""
    precision: str = ""
    sources: tuple[str, ...] = ()
    after: tuple[str, ...] = field(default=(), repr=False)
    computes: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form, times in whole nanoseconds."""
        return {
            "name": self.name,
            "kind": self.kind,
            "kernel": self.kernel,
            "precision": self.precision,
            "sources": list(self.sources),
            "after": list(self.after),
            "computes": self.computes,
            "ns": [round(value) for value in self.ns.tolist()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelTime:
        """Make the object from the output of :meth:`to_json`."""
        return cls(
            data["name"],
            data["kind"],
            np.asarray(data["ns"], np.float64),
            data["kernel"],
            data["precision"],
            tuple(data["sources"]),
            tuple(data["after"]),
            data["computes"],
        )


@dataclass(frozen=True, eq=False)
class OperationTimes:
    """The times of all steps of some runs of a model.

    Parameters
    ----------
    kernels
        The steps, in the order in which they ran.
    wall_ns
        The wall time of each run while the steps were recorded, ``(runs,)`` nanoseconds.
    plain_ns
        The wall time of runs of the session that is not recorded, in nanoseconds; empty if there
        were none.

    Examples
    --------
    >>> step = KernelTime("conv1", "Conv", np.array([700_000.0, 720_000.0]))
    >>> times = OperationTimes((step,), np.array([800_000.0, 810_000.0]))
    >>> times.unattributed_ns
    array([100000.,  90000.])
    >>> round(times.coverage, 3)
    0.882
    """

    kernels: tuple[KernelTime, ...]
    wall_ns: Nanoseconds = field(repr=False)
    plain_ns: Nanoseconds = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def runs(self) -> int:
        """Return the number of recorded runs."""
        return len(self.wall_ns)

    @property
    def table_ns(self) -> Nanoseconds:
        """Return the times of all steps as ``(steps, runs)``."""
        return (
            np.array([each.ns for each in self.kernels])
            if self.kernels
            else np.zeros((0, self.runs))
        )

    @property
    def unattributed_ns(self) -> Nanoseconds:
        """Return the part of each run that belongs to no step, ``(runs,)``: with it, the steps
        add up to the run.
        """
        found: Nanoseconds = self.wall_ns - self.table_ns.sum(axis=0)
        return found

    @property
    def coverage(self) -> float:
        """Return the share of a run that belongs to steps, as the median over the runs."""
        return float(np.median(1 - self.unattributed_ns / self.wall_ns))

    @property
    def overhead(self) -> float | None:
        """Return the share by which the recording lengthened the median run; ``None`` if nothing
        else was timed.
        """
        return (
            float(np.median(self.wall_ns) / np.median(self.plain_ns)) - 1
            if len(self.plain_ns)
            else None
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons why the times of single steps are not to be relied on; none if they
        are.
        """
        plain = float(np.median(self.plain_ns if len(self.plain_ns) else self.wall_ns))
        found = []
        if plain < SHORTEST_NS:
            found.append(
                f"a run takes only {plain / 1000:.0f} µs, less than {SHORTEST_NS // 1000} µs"
            )
        if self.overhead is not None and self.overhead > DEAREST:
            found.append(f"recording made runs {self.overhead:.0%} longer, more than {DEAREST:.0%}")
        return tuple(found)

    def as_profile(self) -> Profile:
        """Return the sums over all runs."""
        timings = tuple(
            Timing(each.name, each.kind, self.runs, round(each.ns.sum())) for each in self.kernels
        )
        return Profile(timings, self.runs, round(self.wall_ns.sum()), rewritten=True)

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {
            "kernels": [each.to_json() for each in self.kernels],
            "wall_ns": [round(value) for value in self.wall_ns.tolist()],
            "plain_ns": [round(value) for value in self.plain_ns.tolist()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OperationTimes:
        """Make the object from the output of :meth:`to_json`."""
        kernels = tuple(map(KernelTime.from_json, data["kernels"]))
        return cls(
            kernels,
            np.asarray(data["wall_ns"], np.float64),
            np.asarray(data["plain_ns"], np.float64),
        )
