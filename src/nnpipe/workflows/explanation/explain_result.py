"""What :func:`nnpipe.explain` returns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnpipe.analysis.layer_times import LayerTimes, PairedLayers, match_layer_times
from nnpipe.analysis.operation_costs import UNKNOWN_KIND, GraphCost, OperationCost
from nnpipe.analysis.roofline import Ceilings, RoofShare
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import format_csv, join_lines, show_text
from nnpipe.core.tensors import TensorSpec
from nnpipe.report.charts import BoxGraph, Lines, StackedBars
from nnpipe.report.document import Table
from nnpipe.report.drawing import pictures
from nnpipe.report.drawing.pictures import draw
from nnpipe.report.formatting import (
    NOTHING,
    clean,
    format_count,
    format_number,
    format_share,
    format_size,
    shorten,
)
from nnpipe.report.layer_tables import (
    MemoryUse,
    build_kind_time_table,
    build_layer_table,
    build_side_by_side_table,
    compute_roof_shares,
    describe_roof_shares,
    describe_times,
    plot_layers_on_roofline,
    plot_memory,
    plot_time_breakdown,
)
from nnpipe.report.writers.tables import format_html_table, to_text
from nnpipe.workflows.explanation.error_tables import (
    build_error_columns,
    build_error_graph,
    build_time_graph,
    describe_faults,
    format_error_sentence,
    with_errors,
)
from nnpipe.workflows.explanation.layer_errors import LayerErrors
from nnpipe.workflows.explanation.reasons import (
    Reason,
    Speedup,
    WhatIf,
    find_reasons,
    predict_speedups,
)

OPERATION_COLUMNS = (
    "name", "kind", "layer", "primitive", "details", "inputs", "outputs", "macs", "other_operations", "bytes_read",
    "bytes_written", "parameters", "live_bytes", "intensity",
)  # fmt: skip


def describe_operation(each: OperationCost) -> dict[str, Any]:
    """Return the figures of an operation as JSON can hold them; ``None`` for what is not known."""
    known = each.arithmetic
    return {
        "name": each.name,
        "kind": each.kind,
        "layer": each.layer,
        "primitive": each.primitive,
        "details": each.details,
        "primitives": [primitive.to_json() for primitive in each.computes],
        "inputs": [spec.to_json() for spec in each.inputs],
        "outputs": [spec.to_json() for spec in each.outputs],
        "macs": None if known is None else known.macs,
        "other_operations": None if known is None else known.others,
        "bytes_read": each.bytes_read,
        "bytes_written": each.bytes_written,
        "parameters": each.parameters,
        "live_bytes": each.live_bytes,
        "intensity": each.intensity,
    }


def build_operation_rows(cost: GraphCost) -> list[dict[str, Any]]:
    """Return a row of plain cells for each operation, with :data:`OPERATION_COLUMNS`."""
    rows = []
    for each in cost.operations:
        row = {
            **describe_operation(each),
            "inputs": _format_tensors(each.inputs),
            "outputs": _format_tensors(each.outputs),
        }
        rows.append({name: row[name] for name in OPERATION_COLUMNS})
    return rows


def build_layer_rows(times: LayerTimes) -> list[dict[str, Any]]:
    """Return a row of plain cells for each step of a runtime, and one for what belongs to none."""
    return [{**each.to_json(), "operations": " ".join(each.operations)} for each in times.rows]


def _format_tensors(specs: Iterable[TensorSpec]) -> str:
    return " ".join(f"{'x'.join(map(str, spec.shape)) or '1'}:{spec.dtype}" for spec in specs)


_NAME, _DETAILS, _MOST_KINDS = 48, 32, 12


@dataclass(frozen=True)
class KindCost:
    """The sums over all operations of one kind.

    Parameters
    ----------
    kind
        The kind of primitive.
    operations
        The number of operations.
    macs, others
        Multiply-accumulates and other operations on numbers; ``None`` if one of the operations has
        no rule.
    traffic
        Bytes read and written; ``None`` if it is not known of one of them.
    parameters
        The sum of the parameters that each operation uses.
    """

    kind: str
    operations: int
    macs: int | None
    others: int | None
    traffic: int | None
    parameters: int

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON can hold them."""
        return asdict(self)


def compute_kind_costs(cost: GraphCost) -> tuple[KindCost, ...]:
    """Return the sums by kind, those with the most arithmetic first."""
    groups: dict[str, list[OperationCost]] = {}
    for each in cost.operations:
        groups.setdefault(each.primitive, []).append(each)
    found = [
        KindCost(
            kind,
            len(members),
            _compute_sum(
                None if each.arithmetic is None else each.arithmetic.macs for each in members
            ),
            _compute_sum(
                None if each.arithmetic is None else each.arithmetic.others for each in members
            ),
            _compute_sum(each.traffic for each in members),
            sum(each.parameters for each in members),
        )
        for kind, members in groups.items()
    ]
    return tuple(
        sorted(found, key=lambda each: (-(each.macs or 0), -(each.others or 0), each.kind))
    )


def build_operation_table(cost: GraphCost) -> Table:
    """Return a table with a row for each operation."""
    header = (
        "operation",
        "kind",
        "details",
        "output",
        "MACs",
        "parameters",
        "read",
        "written",
        "live",
        "operations/byte",
    )
    rows = tuple(
        (
            shorten(clean(each.name), _NAME),
            each.primitive
            if each.primitive != UNKNOWN_KIND
            else f"{UNKNOWN_KIND} ({shorten(clean(each.kind), 24)})",
            shorten(clean(each.details), _DETAILS),
            _format_shapes(each),
            format_count(None if each.arithmetic is None else each.arithmetic.macs),
            format_count(each.parameters),
            _size(each.bytes_read),
            _size(each.bytes_written),
            _size(each.live_bytes),
            format_number(each.intensity),
        )
        for each in cost.operations
    )
    return Table(header, rows)


def build_kind_table(cost: GraphCost) -> Table:
    """Return a table with a row for each kind of primitive, with its share of all."""
    kinds = compute_kind_costs(cost)
    macs, traffic = cost.arithmetic.macs, sum(each.traffic or 0 for each in kinds)
    rows = tuple(
        (
            each.kind,
            format_count(each.operations),
            format_count(each.macs),
            _format_share(each.macs, macs),
            _size(each.traffic),
            _format_share(each.traffic, traffic),
            format_count(each.parameters),
        )
        for each in kinds
    )
    return Table(("kind", "operations", "MACs", "share", "traffic", "of it", "parameters"), rows)


def describe_totals(cost: GraphCost) -> list[str]:
    """Return the totals, and what they do not include, as sentences."""
    total, peak = cost.arithmetic, cost.peak
    least = "at least " if cost.unknown else ""
    told = [
        f"total: {least}{format_count(total.macs)} MACs and {format_count(total.others)} other "
        f"operations; {format_count(cost.parameters)} parameters"
    ]
    if peak is not None:
        told.append(
            f"peak of live memory: {format_count(peak.live_bytes)} bytes, at "
            f"{shorten(clean(peak.name), 80)} "
            "(every value is kept until its last use, nothing fused)"
        )
    if cost.folded:
        told.append(
            f"left out: {_format_operation_count(cost.folded)} on constants, which runtimes "
            f"compute when they load it"
        )
    if cost.unknown:
        kinds = Counter(each.kind for each in cost.unknown)
        named = ", ".join(
            f"{number} {clean(kind, 60)}" for kind, number in kinds.most_common(_MOST_KINDS)
        )
        more = f" and {len(kinds) - _MOST_KINDS} further kinds" if len(kinds) > _MOST_KINDS else ""
        told.append(
            f"not counted: {_format_operation_count(cost.unknown)} without a rule or of unknown "
            f"size: {named}{more}"
        )
    return told


def _format_shapes(each: OperationCost) -> str:
    told = [
        " x ".join("?" if n is None else str(n) for n in spec.shape) + f" {spec.dtype}"
        for spec in each.outputs
    ]
    return f"{told[0]}{f' (+{len(told) - 1})' if len(told) > 1 else ''}" if told else NOTHING


def _size(value: int | None) -> str:
    return NOTHING if value is None else format_size(value)


def _format_share(part: int | None, whole: int) -> str:
    return format_share(part / whole, 1) if part is not None and whole else NOTHING


def _compute_sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


def _format_operation_count(found: Sized) -> str:
    return "1 operation" if len(found) == 1 else f"{len(found)} operations"


@dataclass(frozen=True)
class ExplainResult:
    """The costs of a network, operation by operation.

    Parameters
    ----------
    model
        What was explained, as text.
    inputs
        The inputs with the shapes for which it was counted.
    cost
        The cost of each operation, and the sums.
    times
        The times of the layers in a runtime, if they were measured.
    errors
        The errors of the layers against the source, if they were measured.
    ceilings
        What the machine can do, if it was given with a runtime.
    memory
        The memory that the runtime takes, if it was measured.

    Examples
    --------
    Of the example of :func:`nnpipe.explain`:


    >>> [(kind.kind, kind.macs) for kind in found.kinds if kind.macs]
    [('matrix product', 24)]
    >>> found.save_csv("costs.csv")
    """

    model: str
    inputs: tuple[TensorSpec, ...]
    cost: GraphCost
    times: LayerTimes | None = None
    errors: LayerErrors | None = None
    ceilings: Ceilings | None = None
    memory: MemoryUse | None = None

    @property
    def roof(self) -> tuple[RoofShare | None, ...]:
        """Return how close each row of ``times`` comes to the roof; empty without times or
        ceilings.
        """
        return (
            ()
            if self.times is None or self.ceilings is None
            else compute_roof_shares(self.times, self.ceilings)
        )

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return why a run takes its time, the greatest share first; none without times, or if
        nothing stands out.
        """
        return () if self.times is None else find_reasons(self.times)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the operations that lose accuracy, and why, the worst first; none of a sound
        model.
        """
        return () if self.errors is None else describe_faults(self.errors)

    def what_if(self, *assumptions: str) -> tuple[WhatIf, ...]:
        """Return what a run would take if some steps were faster.

        Parameters
        ----------
        assumptions
            Patterns of names, operators or kinds with a factor, such as ``"Conv*=2x"``; each is
            looked at alone.

        Raises
        ------
        ConfigError
            If no times were measured, an assumption has another form, or it covers no step.
        """
        check_call(ExplainResult.what_if, locals())
        if self.times is None:
            raise ConfigError("what if: no times were measured; name a runtime")
        return predict_speedups(self.times, [Speedup.parse(each) for each in assumptions])

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of all operations that have a rule; see
        ``cost.unknown`` for the others.
        """
        return self.cost.arithmetic.macs

    @property
    def kinds(self) -> tuple[KindCost, ...]:
        """Return the sums by kind of primitive, those with the most operations on numbers first."""
        return compute_kind_costs(self.cost)

    def show(self, breakdown: bool = False) -> None:
        """Print the tables; with ``breakdown`` only the sums by kind."""
        check_call(ExplainResult.show, locals())
        show_text(self.text(breakdown))

    def text(self, breakdown: bool = False) -> str:
        """Return the tables and totals as text; with ``breakdown`` only the sums by kind and the
        totals.
        """
        check_call(ExplainResult.text, locals())
        if self.times is not None:
            tables = (
                []
                if breakdown
                else [to_text(self._with_errors(build_layer_table(self.times, self.roof)))]
            )
            tables += [
                to_text(build_kind_time_table(self.times)),
                join_lines(self._list_sentences()),
            ]
        else:
            tables = (
                [] if breakdown else [to_text(self._with_errors(build_operation_table(self.cost)))]
            )
            tables += [to_text(build_kind_table(self.cost)), join_lines(self._list_sentences())]
        return "\n\n".join((join_lines([self.title]), *tables))

    def _list_sentences(self) -> list[str]:
        told = [] if self.times is None else describe_times(self.times)
        if self.times is not None and self.ceilings is not None:
            told += describe_roof_shares(self.times, self.roof, self.ceilings)
        told += [f"reason: {each.text}" for each in self.reasons]
        if self.errors is not None:
            told += [f"accuracy: {each}" for each in self.faults] + [
                format_error_sentence(self.errors)
            ]
        return [
            *told,
            *describe_totals(self.cost),
            *(
                []
                if self.memory is None
                else self.memory.describe(
                    None if self.cost.peak is None else self.cost.peak.live_bytes
                )
            ),
        ]

    def _with_errors(self, table: Table) -> Table:
        if self.errors is None:
            return table
        return with_errors(table, self.errors, self._covered)

    @property
    def _covered(self) -> list[tuple[str, ...]]:
        """Return the operations of each row."""
        if self.times is None:
            return [(each.name,) for each in self.cost.operations]
        return [each.operations for each in self.times.rows]

    def compare_layers(self, other: ExplainResult) -> tuple[PairedLayers, ...]:
        """Return the times of the same operations here and in another run of the network, layer by
        layer.

        Raises
        ------
        ConfigError
            If one of them has no times, or they have no operation in common.
        """
        check_call(ExplainResult.compare_layers, locals())
        return match_layer_times(*self._require_times(other))

    def format_layer_comparison(self, other: ExplainResult) -> str:
        """Return :meth:`compare_layers` as a table in text, and below it what a run takes there,
        and the doubts."""
        check_call(ExplainResult.format_layer_comparison, locals())
        first, second = self._require_times(other)
        return "\n\n".join(
            (to_text(build_side_by_side_table(first, second)), join_lines(describe_times(second)))
        )

    def _require_times(self, other: ExplainResult) -> tuple[LayerTimes, LayerTimes]:
        if self.times is None or other.times is None:
            raise ConfigError("side by side: both need the times of a runtime")
        return self.times, other.times

    def charts(self) -> dict[str, Lines | StackedBars | BoxGraph]:
        """Return the pictures by name.

        ``memory``, ``breakdown`` and ``graph-time`` of timed layers, ``graph-error`` of errors, and
        ``roofline`` with ceilings. Graphs of more than 600 boxes are left out.
        """
        found: dict[str, Lines | StackedBars | BoxGraph | None] = {
            "memory": plot_memory(self.cost.live_bytes, self.memory)
        }
        if self.times is not None:
            found["breakdown"] = plot_time_breakdown({self.times.runtime: self.times})
            found["graph-time"] = build_time_graph(self.cost, self.times)
        if self.errors is not None:
            found["graph-error"] = build_error_graph(self.cost, self.errors)
        if self.times is not None and self.ceilings is not None:
            found["roofline"] = plot_layers_on_roofline(self.times, self.ceilings)
        return {name: chart for name, chart in found.items() if chart is not None}

    def save_pictures(self, folder: str | Path) -> list[Path]:
        """Write the pictures of :meth:`charts` as SVG files into a folder, and return their paths.

        Raises
        ------
        ConfigError
            If a file cannot be written.
        """
        check_call(ExplainResult.save_pictures, locals())
        written = []
        for name, chart in self.charts().items():
            drawing, path = draw(chart), Path(folder, f"{name}.svg")
            write_text(
                path,
                pictures.render_standalone_svg(
                    drawing,
                    pictures.render_svg_body(drawing),
                    f"{name} of {self.title}",
                    self.title,
                ),
            )
            written.append(path)
        return written

    def __str__(self) -> str:
        return self.text()

    @property
    def title(self) -> str:
        """Return what was explained, and for which inputs."""
        told = ", ".join(
            f"{spec.name} {' x '.join(map(str, spec.shape)) or 'a number'}" for spec in self.inputs
        )
        return f"{self.model} for {told}"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the sums by kind, and the operations below."""
        table = (
            build_kind_table(self.cost) if self.times is None else build_kind_time_table(self.times)
        )
        plain = (
            build_operation_table(self.cost)
            if self.times is None
            else build_layer_table(self.times, self.roof)
        )
        rows = self._with_errors(plain)
        kinds = format_html_table(table, self.title, self._list_sentences())
        return f"{kinds}<details>{format_html_table(rows, 'operations')}</details>"

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them; ``None`` for what is not known."""
        total, peak = self.cost.arithmetic, self.cost.peak
        return {
            "model": self.model,
            "inputs": [spec.to_json() for spec in self.inputs],
            "totals": {
                "macs": total.macs,
                "other_operations": total.others,
                "parameters": self.cost.parameters,
                "peak_live_bytes": None if peak is None else peak.live_bytes,
                "without_rule": len(self.cost.unknown),
                "folded": len(self.cost.folded),
            },
            "kinds": [each.to_json() for each in self.kinds],
            "operations": [describe_operation(each) for each in self.cost.operations],
            "times": None if self.times is None else self.times.to_json(),
            "reasons": [each.to_json() for each in self.reasons],
            "errors": None if self.errors is None else self.errors.to_json(),
            "faults": list(self.faults),
            "roof": [None if each is None else asdict(each) for each in self.roof],
            "ceilings": None if self.ceilings is None else self.ceilings.to_json(),
            "memory": None if self.memory is None else self.memory.to_json(),
        }

    def save_json(self, path: str | Path) -> None:
        """Write all figures as JSON.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(ExplainResult.save_json, locals())
        write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    def save_csv(self, path: str | Path) -> None:
        """Write a row for each operation, or for each timed layer; cells of what is not known are
        empty.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(ExplainResult.save_csv, locals())
        rows = (
            build_operation_rows(self.cost) if self.times is None else build_layer_rows(self.times)
        )
        if self.errors is not None:
            added = build_error_columns(self.errors, self._covered)
            rows = [{**row, **more} for row, more in zip(rows, added, strict=True)]
        write_text(path, format_csv(tuple(rows[0]) if rows else OPERATION_COLUMNS, rows))
