"""The table of a running search: what it says, and that it leaves nothing behind on the
terminal.
"""

from __future__ import annotations

import io
import re

from nnpipe.searching.objectives import Objectives
from nnpipe.searching.trial_store import EarlierTrial, MemoryTrials, Proposal
from nnpipe.workflows.search.live_table import LiveTable, SearchProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(store: MemoryTrials, worker: str = "one"):
    found = store.lease(worker, lambda number: Proposal({"units": number, "rate": 0.123456}), 99)
    assert found is not None
    return found


def test_progress_tells_the_best_what_runs_the_speed_and_the_time_left() -> None:
    clock, store = Clock(), MemoryTrials()
    store.take_over([EarlierTrial({"units": 7}, {"loss": 5.0}, "run 1")])
    progress = SearchProgress(Objectives({"loss": "minimize"}), 10, clock)
    progress.skip(store.trials())
    assert progress.lines()[:2] == ["0 of 10 trials: 1 finished", "0 s so far"]
    for loss in (3.0, 1.0, 2.0):
        store.finish(lease(store), {"loss": loss})
    store.fail(lease(store), "no more paper")
    running = lease(store)
    store.report(running, 4, 0.75)
    progress.update_trials(store.trials())
    clock.now += 40
    assert progress.lines() == [
        "4 of 10 trials: 4 finished, 1 failed, 1 running",
        "40 s so far, 10 s a trial, about 0:01:00 left",
        "best loss 1 in trial 2: units 2, rate 0.1235",
        "  trial 5 for 40 s, 0.75 at step 4: units 5, rate 0.1235",
    ]


def test_only_some_of_many_running_trials_are_shown() -> None:
    store = MemoryTrials()
    for worker in range(11):
        lease(store, f"worker {worker}")
    progress = SearchProgress(Objectives({"loss": "minimize"}), 20)
    progress.update_trials(store.trials())
    assert progress.lines()[-1] == "  and 3 more are running"


def test_the_table_is_below_the_lines_and_is_gone_at_the_end() -> None:
    store, stream = MemoryTrials(), io.StringIO()
    progress = SearchProgress(Objectives({"loss": "minimize"}), 10)
    with LiveTable(store, progress, stream, width=lambda: 30) as table:
        store.finish(lease(store), {"loss": 3.0})
        table.draw("the line of trial 0")
        lease(store)
        table.draw()
    screen = shown(stream.getvalue())
    assert screen == ["the line of trial 0"]
    drawn = [shown(part) for part in _prefixes(stream.getvalue())]
    assert any("trial 1 for" in line for lines in drawn for line in lines)
    assert max(len(line) for lines in drawn for line in lines) <= 29


def _prefixes(text: str) -> list[str]:
    return [text[: match.start()] for match in re.finditer(r"\x1b\[\d+A\r", text)]


def shown(text: str) -> list[str]:
    """Return the lines that a terminal shows after it was sent a text with the few codes of the
    table.
    """
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[\d*[A-Za-z]|\n)", text):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            del lines[row:]
            lines.append("")
        elif not part.startswith("\x1b"):
            lines[row] += part.replace("\r", "")
    return lines[:row]
