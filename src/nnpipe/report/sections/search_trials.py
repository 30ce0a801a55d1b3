"""The sections on all trials of a search, and on how it was searched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nnpipe.report.document import Block, Cell, Paragraph, Section, Table
from nnpipe.report.formatting import NOTHING, count, duration
from nnpipe.report.inputs.search_file import TrialEntry
from nnpipe.report.inputs.search_view import SearchView
from nnpipe.report.sections.search_text import number_text, parameter_text, range_text

_ROWS, _COLUMNS, _OPEN = 1000, 12, 6
_EXAMPLES = 5


def search_trials(view: SearchView) -> Section:
    """Return the section on the trials: all of them in a table, and why some failed."""
    return Section("Trials", (*_failures(view), _table(view)))


def search_method(view: SearchView) -> Section:
    """Return the section on what was searched, and how."""
    facts = tuple(view.found.facts)
    blocks: list[Block] = [
        Table(("Parameter", "Values"), tuple((axis.name, axis.told) for axis in view.found.axes), caption="The space")
    ]
    if facts:
        blocks.append(Table(("What", "How"), facts, caption="The search"))
    return Section("How it was searched", tuple(blocks))


def _failures(view: SearchView) -> Iterator[Block]:
    groups: dict[str, list[int]] = defaultdict(list)
    for trial in view.found.of_state("failed"):
        groups[trial.message or "without a message"].append(trial.number)
    if not groups:
        return
    order = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = []
    for message, numbers in order[:100]:
        examples = ", ".join(str(number) for number in numbers[:_EXAMPLES])
        more = " and more" if len(numbers) > _EXAMPLES else ""
        rows.append((message, Cell(count(len(numbers)), float(len(numbers))), f"{examples}{more}"))
    yield Table(
        ("Why trials failed", "How many", "Trials"), tuple(rows), sortable=True, caption="Reasons of failures",
        folded=len(rows) > _OPEN,
    )  # fmt: skip


def _table(view: SearchView) -> Table | Paragraph:
    found = view.found
    if not found.trials:
        return Paragraph("There are no trials yet.", "note")
    objectives = list(found.objectives)
    axes = list(view.axes(objectives[0]))[:_COLUMNS]
    order = _ordered(view)
    shown = order[:_ROWS]
    noted = any(trial.message or trial.origin for trial in shown)
    rows = []
    for trial in shown:
        seconds = Cell(NOTHING) if trial.seconds is None else Cell(duration(1e9 * trial.seconds), trial.seconds)
        rows.append((
            Cell(f"Trial {trial.number}", float(trial.number)),
            *(_value(trial, name) for name in objectives),
            trial.state,
            *(Cell(parameter_text(trial, axis.name), _sorted_by(trial, axis.name)) for axis in axes),
            seconds,
            *((trial.message or (f"from {trial.origin}" if trial.origin else ""),) if noted else ()),
        ))  # fmt: skip
    names = [axis.name for axis in axes]
    header = ("Trial", *objectives, "State", *_unlike(names, objectives), "Time", *(("Note",) if noted else ()))
    parts = [
        f"All {count(len(order))} trials"
        if len(shown) == len(order)
        else f"{count(len(shown))} of {count(len(order))} trials",
        ", the best first" if len(objectives) == 1 else ", the Pareto front first",
        "; then those that were pruned, with their last values, and those that failed.",
        f" The {len(axes)} most important of {len(found.axes)} parameters." if len(axes) < len(found.axes) else "",
    ]
    return Table(
        header, tuple(rows), sortable=True, caption="".join(parts), minor=(*_unlike(names, objectives)[4:], "Time")
    )


def _unlike(names: list[str], objectives: list[str]) -> list[str]:
    """Return headings of parameters that differ from those of objectives."""
    taken = {*objectives, "Trial", "State", "Time", "Note"}
    return [f"parameter {name}" if name in taken else name for name in names]


def _value(trial: TrialEntry, name: str) -> Cell:
    if name not in trial.values:
        return Cell(NOTHING)
    return Cell(number_text(trial.values[name]), trial.values[name], range_text(trial, name))


def _sorted_by(trial: TrialEntry, name: str) -> float | None:
    value = trial.configuration.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ordered(view: SearchView) -> list[TrialEntry]:
    """Return the trials: finished ones by value or the front first, then pruned, failed and unfinished ones.

    If there are more than the table holds, a tenth of it is kept for those that did not finish.
    """
    objective, *others = view.found.objectives
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    front = {trial.number for trial, _ in view.front} if others else set()
    finished = sorted(
        view.finished, key=lambda trial: (trial.number not in front, sign * trial.values[objective], trial.number)
    )
    known = {trial.number for trial in finished}
    states = ("pruned", "failed", "finished", "running", "waiting")
    rest = sorted((t for t in view.found.trials if t.number not in known), key=lambda t: states.index(t.state))
    if len(finished) + len(rest) <= _ROWS:
        return [*finished, *rest]
    room = max(_ROWS - len(rest), _ROWS * 9 // 10)
    return [*finished[:room], *rest, *finished[room:]]
