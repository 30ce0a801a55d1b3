"""The section of layers: where the time and the memory of each candidate go, and two candidates
layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nnpipe.core.errors import ConfigError
from nnpipe.report.document import Block, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import clean, duration, share, size
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.report.layer_tables import (
    breakdown_chart,
    kind_time_table,
    kind_times,
    layer_table,
    memory_chart,
    roof_chart,
    roof_sentences,
    roof_shares,
    side_by_side_table,
    time_sentences,
)
from nnpipe.report.sections.doubts import MOST_OPEN, grouped_reasons

_MOST_ROWS = 200
_MOST_BARS = 12
_MOST_PAIRS = 6
_DOUBT = "do not rely on"
_MINOR = ("Fused", "95 % interval", "Kernel", "Parameters", "Traffic", "Live", "Ns/value")


def layers(candidates: Sequence[Candidate]) -> Section:
    """Return the section; candidates whose layers could not be timed have a note that says why."""
    known = [(each, each.profile) for each in candidates if each.profile is not None]
    untold = [(each.name, each.no_profile) for each in candidates if each.no_profile]
    blocks: list[Block] = grouped_reasons(
        untold,
        lambda name: f"The layers of {name} were not timed: ",
        "candidates have no times of layers.",
        "note",
    )
    if len(candidates) == 1:
        blocks += [block for _, profile in known for block in profile_blocks(profile)]
        return Section("Layers", tuple(blocks))
    blocks += _together(known)
    folded = len(known) > MOST_OPEN
    for each, profile in known:
        blocks.append(
            Section(
                each.name,
                tuple(profile_blocks(profile, f"{each.number + 1}-")),
                folded,
                _note(profile),
            )
        )
    return Section("Layers", tuple(blocks))


def profile_blocks(profile: LayerProfile, prefix: str = "") -> Iterator[Block]:
    """Yield what is known of a candidate's layers: why it takes its time, the time by kind, the
    layers, the memory.
    """
    times = profile.times
    for told in time_sentences(times):
        yield Paragraph(_sentence(told), "warning" if told.startswith(_DOUBT) else "plain")
    for reason in profile.reasons:
        yield Paragraph(f"Reason: {clean(reason, 600)}.")
    if not prefix:  # otherwise the section has one for all candidates
        chart = breakdown_chart({times.runtime: times})
        yield Plot(
            chart,
            "layers-time",
            "Time of a run by kind of operation",
            f"Time of a run: {_kinds(profile, 4)}.",
        )
    yield replace(_table(kind_time_table(times)), caption="Time by kind of operation")
    roof = () if profile.ceilings is None else roof_shares(times, profile.ceilings)
    caption = f"The {len(times.layers):,} steps of a run, with the operations that each computes"
    if len(times.layers) > _MOST_ROWS:
        caption += f"; the {_MOST_ROWS:,} longest"
    table = _table(layer_table(times, roof, _MOST_ROWS))
    yield replace(table, sortable=True, folded=True, caption=caption, minor=_MINOR)
    if profile.ceilings is not None:
        for told in roof_sentences(times, roof, profile.ceilings):
            yield Paragraph(_sentence(told), "warning" if told.startswith("doubt") else "plain")
        roofline = roof_chart(times, profile.ceilings)
        if roofline is not None:
            yield Plot(
                roofline,
                f"{prefix}layers-roofline",
                "Each layer below what this machine can do",
                f"Operations a second of the layers in {clean(times.runtime)}, by operations a "
                f"byte.",
            )
    yield from _memory(profile, prefix)


def _memory(profile: LayerProfile, prefix: str) -> Iterator[Block]:
    live = max(profile.live_bytes, default=None)
    for told in () if profile.memory is None else profile.memory.sentences(live):
        yield Paragraph(_sentence(told))
    chart = memory_chart(profile.live_bytes, profile.memory)
    if chart is not None and live is not None:
        measured = None if profile.memory is None else profile.memory.peak_bytes
        beside = (
            "" if measured is None else f"; the peak measured while it runs is {size(measured)}"
        )
        yield Plot(
            chart,
            f"{prefix}layers-memory",
            "Memory of the values that exist while each operation runs"
            + ("" if measured is None else ", beside the measured peak"),
            f"At most {size(live)} live at once{beside}.",
        )


def _together(known: Sequence[tuple[Candidate, LayerProfile]]) -> Iterator[Block]:
    """Yield the candidates beside each other: by kind, and layer by layer with the first one."""
    if len(known) < 2:
        return
    shown = known[:_MOST_BARS]
    caption = "Time of a run by kind of operation"
    if len(shown) < len(known):
        caption += f", of the first {len(shown)} of {len(known):,} candidates"
    yield Plot(
        breakdown_chart({each.name: profile.times for each, profile in shown}),
        "layers-time",
        caption,
        "; ".join(f"{each.name}: {_kinds(profile, 2)}" for each, profile in shown) + ".",
    )
    (first, of_first), *others = known
    pairs = 0
    for other, profile in others:
        try:
            table = side_by_side_table(
                of_first.times, profile.times, (first.name, other.name), _MOST_ROWS
            )
        except ConfigError:  # other networks
            continue
        pairs += 1
        if pairs > _MOST_PAIRS:
            yield Paragraph(
                "Further candidates are not shown beside the first; a report on two of them shows "
                "them."
            )
            return
        yield replace(
            table,
            header=(
                *map(_first_up, table.header[:3]),
                *table.header[3:5],
                *map(_first_up, table.header[5:]),
            ),
            sortable=True,
            folded=True,
            caption=f"Layer by layer: {first.name} and {other.name}",
            minor=("Fused", "Kind", "Precision", "Second's"),
        )


def _note(profile: LayerProfile) -> str:
    return f"{duration(profile.times.run_ns)} a run; {_kinds(profile, 1)}"


def _kinds(profile: LayerProfile, most: int) -> str:
    return ", ".join(
        f"{each.kind} {share(each.share, 0)}" for each in kind_times(profile.times)[:most]
    )


def _table(table: Table) -> Table:
    return replace(table, header=tuple(map(_first_up, table.header)))


def _sentence(text: str) -> str:
    return f"{_first_up(clean(text, 600))}."


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
