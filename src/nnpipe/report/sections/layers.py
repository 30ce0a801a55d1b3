"""The section of layers: where the time and the memory of each candidate go, and two candidates
layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nnpipe.core.errors import ConfigError
from nnpipe.report.document import Block, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import clean, format_duration, format_share, format_size
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.report.layer_tables import (
    build_kind_time_table,
    build_layer_table,
    build_side_by_side_table,
    compute_roof_shares,
    describe_roof_shares,
    describe_times,
    plot_layers_on_roofline,
    plot_memory,
    plot_time_breakdown,
    sum_by_kind,
)
from nnpipe.report.sections.validity_warnings import MOST_OPEN, group_reasons

_MOST_ROWS = 200
_MOST_BARS = 12
_MOST_PAIRS = 6
_DOUBT = "do not rely on"
_MINOR = ("Fused", "95 % interval", "Kernel", "Parameters", "Traffic", "Live", "Ns/value")


def build_layers_section(candidates: Sequence[Candidate]) -> Section:
    """Return the section; candidates whose layers could not be timed have a note that says why."""
    known = [(each, each.profile) for each in candidates if each.profile is not None]
    untold = [(each.name, each.no_profile) for each in candidates if each.no_profile]
    blocks: list[Block] = group_reasons(
        untold,
        lambda name: f"The layers of {name} were not timed: ",
        "candidates have no times of layers.",
        "note",
    )
    if len(candidates) == 1:
        blocks += [block for _, profile in known for block in build_profile_blocks(profile)]
        return Section("Layers", tuple(blocks))
    blocks += _compare_profiles(known)
    folded = len(known) > MOST_OPEN
    for each, profile in known:
        blocks.append(
            Section(
                each.name,
                tuple(build_profile_blocks(profile, f"{each.number + 1}-")),
                folded,
                _format_note(profile),
            )
        )
    return Section("Layers", tuple(blocks))


def build_profile_blocks(profile: LayerProfile, prefix: str = "") -> Iterator[Block]:
    """Yield what is known of a candidate's layers: why it takes its time, the time by kind, the
    layers, the memory.
    """
    times = profile.times
    for told in describe_times(times):
        yield Paragraph(_format_sentence(told), "warning" if told.startswith(_DOUBT) else "plain")
    for reason in profile.reasons:
        yield Paragraph(f"Reason: {clean(reason, 600)}.")
    if not prefix:  # otherwise the section has one for all candidates
        chart = plot_time_breakdown({times.runtime: times})
        yield Plot(
            chart,
            "layers-time",
            "Time of a run by kind of operation",
            f"Time of a run: {_format_kinds(profile, 4)}.",
        )
    yield replace(_format_table(build_kind_time_table(times)), caption="Time by kind of operation")
    roof = () if profile.ceilings is None else compute_roof_shares(times, profile.ceilings)
    caption = f"The {len(times.layers):,} steps of a run, with the operations that each computes"
    if len(times.layers) > _MOST_ROWS:
        caption += f"; the {_MOST_ROWS:,} longest"
    table = _format_table(build_layer_table(times, roof, _MOST_ROWS))
    yield replace(table, sortable=True, folded=True, caption=caption, minor=_MINOR)
    if profile.ceilings is not None:
        for told in describe_roof_shares(times, roof, profile.ceilings):
            yield Paragraph(
                _format_sentence(told), "warning" if told.startswith("doubt") else "plain"
            )
        roofline = plot_layers_on_roofline(times, profile.ceilings)
        if roofline is not None:
            yield Plot(
                roofline,
                f"{prefix}layers-roofline",
                "Each layer below what this machine can do",
                f"Operations a second of the layers in {clean(times.runtime)}, by operations a "
                f"byte.",
            )
    yield from _build_memory_blocks(profile, prefix)


def _build_memory_blocks(profile: LayerProfile, prefix: str) -> Iterator[Block]:
    live = max(profile.live_bytes, default=None)
    for told in () if profile.memory is None else profile.memory.describe(live):
        yield Paragraph(_format_sentence(told))
    chart = plot_memory(profile.live_bytes, profile.memory)
    if chart is not None and live is not None:
        measured = None if profile.memory is None else profile.memory.peak_bytes
        beside = (
            ""
            if measured is None
            else f"; the peak measured while it runs is {format_size(measured)}"
        )
        yield Plot(
            chart,
            f"{prefix}layers-memory",
            "Memory of the values that exist while each operation runs"
            + ("" if measured is None else ", beside the measured peak"),
            f"At most {format_size(live)} live at once{beside}.",
        )


def _compare_profiles(known: Sequence[tuple[Candidate, LayerProfile]]) -> Iterator[Block]:
    """Yield the candidates beside each other: by kind, and layer by layer with the first one."""
    if len(known) < 2:
        return
    shown = known[:_MOST_BARS]
    caption = "Time of a run by kind of operation"
    if len(shown) < len(known):
        caption += f", of the first {len(shown)} of {len(known):,} candidates"
    yield Plot(
        plot_time_breakdown({each.name: profile.times for each, profile in shown}),
        "layers-time",
        caption,
        "; ".join(f"{each.name}: {_format_kinds(profile, 2)}" for each, profile in shown) + ".",
    )
    (first, of_first), *others = known
    pairs = 0
    for other, profile in others:
        try:
            table = build_side_by_side_table(
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
                *map(_format_capitalized, table.header[:3]),
                *table.header[3:5],
                *map(_format_capitalized, table.header[5:]),
            ),
            sortable=True,
            folded=True,
            caption=f"Layer by layer: {first.name} and {other.name}",
            minor=("Fused", "Kind", "Precision", "Second's"),
        )


def _format_note(profile: LayerProfile) -> str:
    return f"{format_duration(profile.times.run_ns)} a run; {_format_kinds(profile, 1)}"


def _format_kinds(profile: LayerProfile, most: int) -> str:
    return ", ".join(
        f"{each.kind} {format_share(each.share, 0)}" for each in sum_by_kind(profile.times)[:most]
    )


def _format_table(table: Table) -> Table:
    return replace(table, header=tuple(map(_format_capitalized, table.header)))


def _format_sentence(text: str) -> str:
    return f"{_format_capitalized(clean(text, 600))}."


def _format_capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
