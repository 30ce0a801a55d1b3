"""The section on how much each parameter of a search matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnpipe.report.charts import Interval, Intervals
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import NOTHING, count, share
from nnpipe.report.inputs.search_file import ImportanceEntry, ImportanceRow, SearchFile

_PICTURED = 12
_FEW = 30  # trials, below which shares say little

FANOVA_WARNING = (
    "fANOVA's regression trees rank parameters wrongly where trials crowd together, as those of all samplers but "
    "random and grid do. Trust its order only if the other methods agree."
)


def search_importance(found: SearchFile) -> Section:
    """Return the section."""
    blocks: list[Block] = []
    for place, (objective, known) in enumerate(found.importance.items()):
        blocks += _of(objective, known, place + 1, many=len(found.importance) > 1)
    if not blocks:
        blocks.append(Paragraph("There are too few finished trials to tell.", "note"))
    return Section("What matters", tuple(blocks))


def _of(objective: str, known: ImportanceEntry, number: int, many: bool) -> Iterator[Block]:
    rows = known.additive or known.ped_anova
    if not rows or known.trials < 2:
        yield Paragraph(f"For {objective}, there are too few finished trials to tell.", "note")
        return
    if known.trials < _FEW:
        yield Paragraph(f"For {objective}, {known.trials} finished trials say little: see the intervals.", "note")
    if known.remark:
        yield Paragraph(f"{objective}: {known.remark}." if many else _sentence(known.remark), "warning")
    if known.fanova:
        yield Paragraph(FANOVA_WARNING, "warning")
    if known.additive:
        yield _picture(objective, known.additive, f"importance-{number}", "over its whole range, by the additive model")
    yield _picture(objective, known.ped_anova, f"importance-best-{number}", "for the best tenth, by PED-ANOVA")
    yield _table(objective, known)


def _picture(objective: str, rows: Sequence[ImportanceRow], name: str, what: str) -> Plot:
    shown = rows[:_PICTURED]
    few = f"; the first {len(shown)} of {count(len(rows))} parameters" if len(shown) < len(rows) else ""
    return Plot(
        Intervals(f"share of what matters for {objective}, %"[:60], tuple(_bar(row) for row in shown), 0.0),
        name,
        f"What each parameter matters for {objective} {what}, with 95 % intervals{few}",
        f"Importance for {objective}, {what}: " + ", ".join(f"{row.name} {share(row.share, 0)}" for row in shown) + ".",
    )


def _bar(row: ImportanceRow) -> Interval:
    return Interval(row.name, 100 * row.share, (100 * row.low, 100 * row.high), share(row.share, 1), 0, row.low > 0)


def _table(objective: str, known: ImportanceEntry) -> Table:
    methods = {"Additive model": known.additive, "PED-ANOVA": known.ped_anova, "fANOVA": known.fanova}
    given = {title: {row.name: row for row in rows} for title, rows in methods.items() if rows}
    names = list(dict.fromkeys(name for rows in given.values() for name in rows))
    return Table(
        ("Parameter", *given),
        tuple((name, *(_cell(rows.get(name)) for rows in given.values())) for name in names),
        sortable=True,
        caption=f"Importance for {objective} from {count(known.trials)} finished trials. Additive model: the share of "
        "the variance that each parameter alone explains, over its whole range. PED-ANOVA: how much the best tenth of "
        "trials differs from all in the parameter. Both with 95 % intervals, and usable on trials that crowd together.",
    )


def _cell(row: ImportanceRow | None) -> Cell:
    if row is None:
        return Cell(NOTHING)
    note = f"{share(row.low, 1)} to {share(row.high, 1)}" if row.low < row.high else ""
    return Cell(share(row.share, 1), row.share, note)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def told_shares(rows: Sequence[ImportanceRow]) -> dict[str, str]:
    """Return the share of each parameter as text, by name."""
    return {row.name: share(row.share, 0) for row in rows}
