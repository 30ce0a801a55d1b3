"""The section on a comparison of candidates that took turns: verdicts, a plot of the ratios of times, and a table."""

from __future__ import annotations

from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.paired_comparison import Verdict
from nnpipe.report.charts import Interval, Intervals
from nnpipe.report.document import Block, Paragraph, Plot, Section
from nnpipe.report.formatting import clean, count, share
from nnpipe.report.sections.comparison_findings import comparison_table, leader, remarks, sentences

_WIDE = 1.5  # from this ratio on the axis is logarithmic, so that equal ratios are equally long


def contest(comparison: Comparison) -> Section:
    """Return the section."""
    doubtful = set(remarks(comparison))
    blocks: list[Block] = [
        Paragraph(text, "warning" if text in doubtful else "plain") for text in sentences(comparison)
    ]
    figure = _ratios(comparison)
    if figure is not None:
        blocks += [figure, comparison_table(comparison)]
    return Section("Side by side", tuple(blocks))


def _ratios(comparison: Comparison) -> Plot | None:
    found = comparison.verdicts()
    if not found:
        return None
    names = [clean(run.title, 60) for run in comparison.whole]
    best = leader(found)
    rows = tuple(_row(each, best, names) for each in found if best in (each.first, each.second))
    margin = comparison.plan.margin or 0.0
    within = f"; within the grey band, {100 * margin:g} % either way, times count as the same" if margin else ""
    sure = share(comparison.plan.confidence, 0)
    starts = max(each.starts for each in found)
    return Plot(
        Intervals(
            f"time by that of {names[best]}"[:60],
            rows,
            1.0,
            margin,
            log_x=max(row.value for row in rows) > _WIDE and all(row.value > 0 for row in rows),
        ),
        "ratios-of-times",
        f"How long each takes by the time of {names[best]}, from {count(starts)} starts in which all took turns; all "
        f"intervals hold together with {sure} confidence. Hollow: not told apart{within}",
        f"Ratios of times to {names[best]}: " + "; ".join(f"{row.label} {row.text}" for row in rows) + ".",
    )


def _row(found: Verdict, best: int, names: list[str]) -> Interval:
    other = found.second if found.first == best else found.first
    turned = found.first != best
    ratio, ends = found.ratio, found.interval
    if turned:
        ratio, ends = 1 / ratio, None if ends is None else (1 / ends[1], 1 / ends[0])
    text = f"{ratio:.3f}" if ends is None else f"{ratio:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
    return Interval(names[other], ratio, ends, text, other, clear=found.kind == "faster")
