"""What :func:`nnpipe.predict` returns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.analysis.kernel_table import KernelTable
from nnpipe.analysis.kernels import FusedKernel
from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import format_csv, join_lines, show_text
from nnpipe.report.document import Table
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_count,
    format_duration,
    format_share,
    shorten,
)
from nnpipe.report.writers.tables import format_html_table, to_text

_NAME, _MOST_NAMED = 48, 6
_DOUBTFUL = 0.1


@dataclass(frozen=True)
class PredictedKernel:
    """A kernel with its estimated time.

    Parameters
    ----------
    kernel
        What is computed.
    ns
        The time in nanoseconds; ``None`` if nothing is known of it.
    factors
        The ends of the interval (nine in ten), relative to the time.
    outside
        Why it is outside of what was measured; empty if it is not.
    """

    kernel: FusedKernel
    ns: float | None
    factors: tuple[float, float]
    outside: str = ""

    @property
    def name(self) -> str:
        """Return the operation that matters most in it."""
        return self.kernel.operations[0] if self.kernel.operations else self.kernel.kind

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the ends of the interval in nanoseconds; ``None`` if nothing is known."""
        return None if self.ns is None else (self.ns * self.factors[0], self.ns * self.factors[1])


@dataclass(frozen=True)
class Prediction:
    """How long a network takes.

    Parameters
    ----------
    title
        The network.
    kernels
        Its kernels in order.
    call_ns
        What a run takes besides them, in nanoseconds.
    ns
        The sum.
    interval
        Between which times the real one lies, nine times in ten.
    macs_alone_ns
        What would be predicted if the multiply-accumulates alone were known.
    """

    title: str
    kernels: tuple[PredictedKernel, ...] = field(repr=False)
    call_ns: float
    ns: float
    interval: tuple[float, float]
    macs_alone_ns: float

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates."""
        return round(sum(each.kernel.macs for each in self.kernels))

    @property
    def without_time(self) -> int:
        """Return the number of kernels of which nothing is known; the time is then a lower
        bound.
        """
        return sum(each.ns is None for each in self.kernels)

    @property
    def outside_share(self) -> float:
        """Return the share of the time in kernels that are outside of what was measured."""
        return sum(each.ns or 0.0 for each in self.kernels if each.outside) / self.ns

    @property
    def outside(self) -> dict[str, float]:
        """Return the kinds of kernels outside of what was measured, why, and their shares of the
        time.
        """
        found: Counter[str] = Counter()
        for each in self.kernels:
            if each.outside:
                found[f"{each.kernel.kind or 'unknown'} ({each.outside})"] += (
                    each.ns or 0.0
                ) / self.ns  # type: ignore[assignment]
        return dict(found.most_common())

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        return {
            "title": self.title,
            "ns": self.ns,
            "interval_ns": list(self.interval),
            "call_ns": self.call_ns,
            "macs": self.macs,
            "macs_alone_ns": self.macs_alone_ns,
            "outside_share": self.outside_share,
            "outside": self.outside,
            "without_time": self.without_time,
            "kernels": [_build_row(each) for each in self.kernels],
        }


@dataclass(frozen=True)
class PredictResult:
    """How long networks take in a runtime on a machine.

    Parameters
    ----------
    table
        The kernels by which they were predicted.
    predictions
        The networks.

    Examples
    --------
    Of the example of :func:`nnpipe.predict`:

    >>> len(found.predictions), found.table.runtime
    (1, 'ONNXRuntime')
    >>> found.save_json("predicted.json")
    """

    table: KernelTable
    predictions: tuple[Prediction, ...]

    @property
    def title(self) -> str:
        """Return by what it was predicted."""
        return (
            f"predicted for {self.table.title}, from {len(self.table.kernels)} kernels of "
            f"{self.table.created[:10]}"
        )

    def show(self, kernels: bool = True) -> None:
        """Print the tables; with several networks, or without ``kernels``, a row for each."""
        check_call(PredictResult.show, locals())
        show_text(self.text(kernels))

    def text(self, kernels: bool = True) -> str:
        """Return the tables as text; with several networks, or without ``kernels``, a row for
        each.
        """
        check_call(PredictResult.text, locals())
        tables = (
            [to_text(build_kernel_table(self.predictions[0]))]
            if kernels and len(self.predictions) == 1
            else []
        )
        return "\n\n".join(
            (self.title, *tables, to_text(self.overview()), join_lines(self.sentences()))
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        return format_html_table(self.overview(), self.title, self.sentences())

    def overview(self) -> Table:
        """Return a table with a row for each network."""
        scale = Scale.from_times([each.ns for each in self.predictions])
        header = (
            "network",
            f"time ({scale.unit})",
            "90 % interval",
            "MACs",
            "by MACs alone",
            "outside",
            "kernels",
        )
        rows = tuple(
            (
                shorten(clean(each.title), _NAME),
                f"{'at least ' if each.without_time else ''}{scale.text(each.ns)}",
                scale.format_interval(each.interval),
                format_count(each.macs),
                scale.text(each.macs_alone_ns),
                format_share(each.outside_share, 0) if each.outside else NOTHING,
                format_count(len(each.kernels)),
            )
            for each in self.predictions
        )
        return Table(header, rows)

    def sentences(self) -> list[str]:
        """Return what to know about the predictions, as sentences."""
        told = [f"doubt: {each}" for each in self.table.doubts]
        several = len(self.predictions) > 1
        for each in self.predictions[: _MOST_NAMED if several else 1]:
            where = f"{shorten(clean(each.title), _NAME)}: " if several else ""
            named = [
                f"{clean(name)}: {format_share(part, 1)}" for name, part in each.outside.items()
            ]
            if each.without_time:
                told.append(
                    f"{where}{each.without_time} operations are not known here, and have no time"
                )
            if named:
                more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
                told.append(
                    f"{where}outside of what was measured: {'; '.join(named[:_MOST_NAMED])}{more}"
                )
            if each.outside_share > _DOUBTFUL or each.without_time:
                told.append(f"{where}doubt: the interval does not cover what is outside")
        if not several:
            told.insert(
                0,
                f"a call takes {format_duration(self.predictions[0].call_ns)} besides its kernels",
            )
        return told

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        about = {
            name: getattr(self.table, name)
            for name in ("machine", "runtime", "version", "precision", "threads", "created")
        }
        return {
            "table": {
                **about,
                "kernels": len(self.table.kernels),
                "doubts": list(self.table.doubts),
            },
            "predictions": [each.to_json() for each in self.predictions],
        }

    def save_json(self, path: str | Path) -> None:
        """Write all figures as JSON.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(PredictResult.save_json, locals())
        write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    def save_csv(self, path: str | Path) -> None:
        """Write a row for each kernel of each network.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(PredictResult.save_csv, locals())
        rows = [
            {"network": each.title, **_build_row(kernel)}
            for each in self.predictions
            for kernel in each.kernels
        ]
        joined = ({**row, "operations": " ".join(row["operations"])} for row in rows)
        write_text(path, format_csv(tuple(rows[0]) if rows else ("network",), joined))


def build_kernel_table(prediction: Prediction) -> Table:
    """Return a table with a row for each kernel."""
    scale = Scale.from_times([each.ns or 0.0 for each in prediction.kernels])
    rows = tuple(
        (
            shorten(clean(each.name), _NAME),
            each.kernel.kind or NOTHING,
            " ".join(each.kernel.fused),
            NOTHING if each.ns is None else scale.text(each.ns),
            NOTHING if each.interval is None else scale.format_interval(each.interval),
            NOTHING if each.ns is None else format_share(each.ns / prediction.ns, 1),
            format_count(round(each.kernel.macs)),
            each.outside,
        )
        for each in prediction.kernels
    )
    return Table(
        (
            "operation",
            "kind",
            "with",
            f"time ({scale.unit})",
            "90 % interval",
            "share",
            "MACs",
            "outside",
        ),
        rows,
    )


def _build_row(each: PredictedKernel) -> Mapping[str, Any]:
    low, high = each.interval or (None, None)
    return {
        "name": each.name,
        "kind": each.kernel.kind,
        "fused": " ".join(each.kernel.fused),
        "operations": list(each.kernel.operations),
        "ns": each.ns,
        "low_ns": low,
        "high_ns": high,
        "macs": round(each.kernel.macs),
        "traffic": round(each.kernel.traffic),
        "outside": each.outside,
    }
