"""What a run costs in the run database: transactions that wait for the disk, and processor time."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from _growth import growth
from _table import EPYC

from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase

_CONFIGURATION = Configuration({"seed": 0, "model": {"class": "CNN", "arguments": {"depth": 4}}})
_ENVIRONMENT = {"packages": {f"package{number}": "1.0" for number in range(30)}}


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge runs of 3 and 30 epochs: a transaction costs the same, however much it holds."""
    runs = 20 if quick else 100
    found = {epochs: recorded(epochs, runs) for epochs in (3, 30)}
    transactions, seconds = zip(*found.values(), strict=True)
    return [
        growth(
            "a run into the database: transactions",
            "besides create",
            list(found),
            transactions,
            2,
            seen_on=EPYC,
        ),
        growth(
            "a run into the database: processor time",
            "ms",
            list(found),
            [1e3 * each for each in seconds],
            3,
            seen_on=EPYC,
        ),
    ]


def recorded(epochs: int, runs: int) -> tuple[float, float]:
    """Return the synchronised transactions of a run besides its creation, and its CPU seconds
    (the least of all).
    """
    import sqlalchemy as sa

    rows = [
        {"epoch": number, "loss": 1 / number, "accuracy": 0.5} for number in range(1, epochs + 1)
    ]
    commits: list[object] = []
    seconds = []
    with (
        tempfile.TemporaryDirectory() as folder,
        RunDatabase(Path(folder) / "runs.sqlite") as database,
    ):
        sa.event.listen(database._connections.engine, "commit", commits.append)
        for _ in range(runs):
            begin = time.process_time()
            _record(database, rows)
            seconds.append(time.process_time() - begin)
    return len(commits) / runs - 1, min(seconds)


def _record(database: RunDatabase, rows: list[dict[str, float]]) -> None:
    run = database.runs.create("CNN on digits", _CONFIGURATION, environment=_ENVIRONMENT)
    with database.together():
        database.runs.enter(run, "running")
        database.put_origins(run, [])
    with database.together():
        database.figures.put_history(run, "epochs", rows, at=0)
        database.figures.put_statistics(run, rows[-1])
        database.runs.advance(run, len(rows), len(rows))
        database.runs.enter(run, "completed")
