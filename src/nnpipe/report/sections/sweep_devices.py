"""The section on the devices of a sweep: what the candidates of each reach, and which is the cheapest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table
from nnpipe.report.formatting import (
    NOTHING,
    format_price,
    format_prices,
)
from nnpipe.report.inputs.sweep_file import SweepCandidate, SweepDevice, SweepFile
from nnpipe.report.quantity_text import format_figure_interval, format_quantity
from nnpipe.report.sections.sweep import get_inline_title


def build_devices_section(found: SweepFile) -> Section:
    """Return the section."""
    return Section("Which device", tuple(_build_device_blocks(found)))


def describe_cheapest_device(found: SweepFile) -> str:
    """Return which device to take, as a sentence."""
    best = next((each for each in found.devices if each.name == found.cheapest), None)
    if best is None:
        return "On no device does a candidate qualify."
    able = [each for each in found.devices if each.chosen is not None]
    if not found.cost_by:
        why = (
            f"what devices cost is not known, and its candidate is the best by "
            f"{get_inline_title(found.choose)}"
        )
        return (
            f"{best.name} is the device to take: "
            f"{why if len(able) > 1 else 'on no other does a candidate qualify'}."
        )
    held = " that keeps the constraints" if found.constraints else ""
    cost = format_price(getattr(best, found.cost_by), found.cost_by, found.currency)
    unknown = [each.name for each in able if getattr(each, found.cost_by) is None]
    more = (
        f" What {', '.join(unknown)} costs is not known in this way, and was not compared."
        if unknown
        else ""
    )
    return f"{best.name} is the cheapest device{held}: {cost}.{more}"


def build_model_table(found: SweepFile) -> Table:
    """Return a table of devices by models, with the best candidate that qualifies in each cell."""
    models = list(dict.fromkeys(point.model for point in found.points if point.model))
    rows = [
        (
            Cell(each.name),
            Cell(_format_device_price(found, each)),
            *(_format_best_cell(found, each, model) for model in models),
        )
        for each in found.devices
    ]
    return _remove_empty_prices(
        Table(
            ("Device", "Cost", *models),
            tuple(rows),
            caption=f"The best candidate of each model that qualifies on each device, by "
            f"{get_inline_title(found.choose)}; those "
            "that are chosen as measured again",
        )
    )


def build_device_table(found: SweepFile) -> Table:
    """Return a table of what is best on each device, with the figures that are claimed of it."""
    metrics = [metric for metric in found.metrics if metric.name != found.choose.name]
    rows = []
    for each in found.devices:
        figures = each.again.figures if each.again is not None else {}
        claimed = [
            _format_device_figure_cell(figures.get(metric.name), metric)
            for metric in (found.choose, *metrics)
        ]
        rows.append(
            (
                Cell(each.name),
                Cell(_format_device_price(found, each)),
                Cell(_get_best_combination(found, each)),
                *claimed,
            )
        )
    heads = [metric.heading for metric in (found.choose, *metrics)]
    caption = "The best candidate on each device, as measured again there"
    return _remove_empty_prices(
        Table(("Device", "Cost", "Best candidate", *heads), tuple(rows), caption=caption)
    )


def _build_device_blocks(found: SweepFile) -> Iterator[Block]:
    yield Paragraph(describe_cheapest_device(found), "plain" if found.cheapest else "warning")
    yield build_model_table(found)
    yield build_device_table(found)
    described = [(each.name, each.description) for each in found.devices if each.description]
    if described:
        yield Table(
            ("Device", "What it is"), tuple(described), folded=True, caption="What the devices are"
        )
    for each in found.devices:
        if each.away:
            yield Paragraph(f"{each.name} did not give all results: {each.away}.", "warning")


def _format_best_cell(found: SweepFile, device: SweepDevice, model: str) -> Cell:
    mine = [point for point in found.points if point.device == device.name and point.model == model]
    chosen = next((point for point in mine if point.title == device.chosen), None)
    if chosen is not None and device.again is not None:
        return _format_device_figure_cell(
            device.again.figures.get(found.choose.name), found.choose, chosen.combination
        )
    able = [point for point in mine if point.qualifies and found.choose.name in point.figures]
    known = [
        (point.figures[found.choose.name], point)
        for point in able
        if point.title not in device.refuted
    ]
    known = [(figure, point) for figure, point in known if figure.value is not None]
    if known:
        sign = 1 if found.choose.less_is_better else -1
        figure, point = min(known, key=lambda pair: (sign * (pair[0].value or 0.0), pair[1].title))
        return _format_device_figure_cell(figure, found.choose, point.combination)
    if able:
        return Cell("none qualifies", None, "did not hold when measured again")
    return (
        Cell("none qualifies", None, _explain_disqualified(found, mine))
        if mine
        else Cell("not measured")
    )


def _explain_disqualified(found: SweepFile, points: Sequence[SweepCandidate]) -> str:
    """Return the constraint that most candidates do not keep."""
    broken = Counter(
        c.metric.heading
        for p in points
        for c in found.constraints
        if p.claims.get(c.text) is not True
    )
    return f"most often {broken.most_common(1)[0][0]}" if broken else ""


def _get_best_combination(found: SweepFile, device: SweepDevice) -> str:
    if device.chosen is None:
        return (
            "none qualifies"
            if any(point.device == device.name for point in found.points)
            else "not measured"
        )
    return next(
        (point.combination for point in found.points if point.title == device.chosen), device.chosen
    )


def _format_device_figure_cell(known: Figure | None, metric: Quantity, note: str = "") -> Cell:
    if known is None or known.value is None:
        return Cell(NOTHING, None, note)
    return Cell(
        format_quantity(metric, known.value),
        known.value,
        note or format_figure_interval(metric, known),
    )


def _format_device_price(found: SweepFile, device: SweepDevice) -> str:
    return format_prices(device.cost_per_hour, device.cost_per_piece, found.currency)


def _remove_empty_prices(table: Table) -> Table:
    """Return a table without the column of costs if no cost is known."""
    if any(row[1].text for row in table.cells()):
        return table
    rows = tuple((row[0], *row[2:]) for row in table.rows)
    return Table((table.header[0], *table.header[2:]), rows, caption=table.caption)
