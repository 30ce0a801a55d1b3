"""The matrix as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnpipe.measuring.comparison import TIMES
from zoo.cells import REFERENCE
from zoo.matrix_file import MatrixFile

_FINE = ("same", "close")


def table(matrix: MatrixFile, output: Path) -> str:
    """Return verdicts, how well each model was trained, times, and why cells are refused,
    different or unclear.
    """
    cells = {
        (model, way): _read(output / model / f"{way}.json")
        for model in matrix.models
        for way in matrix.ways
    }
    done = Counter(found["verdict"] for found in cells.values() if found)
    scores = {model: _score(output / model / "score.json") for model in matrix.models}
    total = sum(done.values())
    fine = sum(done[verdict] for verdict in _FINE)
    lines = [
        f"{total} cells of {len(cells)}: "
        + ", ".join(f"{count} {verdict}" for verdict, count in done.most_common()),
        f"({fine} of {total} same or close).",
        "",
        *_rows(matrix, cells, lambda found: found["verdict"], scores),
        "",
        f"Time of one sample on one thread, relative to `{REFERENCE}` in floats, both measured in "
        f"turn:",
        "",
        *_rows(matrix, cells, lambda found: f"{found['time']:.2f}" if "time" in found else "–"),
        "",
    ]
    lines += [*_slow(matrix, cells), ""]
    lines += [
        f"- {model}, {way}: {found['verdict']}: {' '.join(found['reason'].split())}"
        for (model, way), found in cells.items()
        if found and found["verdict"] not in _FINE
    ]
    return "\n".join(lines) + "\n"


def _slow(matrix: MatrixFile, cells: Any) -> Iterator[str]:
    """Yield a line for each cell that takes more than three times as long as the best way in
    floats.
    """
    for model in matrix.models:
        times = {
            way: found["time"]
            for way in matrix.ways
            if "time" in (found := cells[model, way] or {})
        }
        floats = {
            way: time for way, time in times.items() if "int8" not in way and "dynamic" not in way
        }
        best = min(floats, key=floats.__getitem__, default=REFERENCE)
        for way, time in times.items():
            if time > TIMES * floats.get(best, 1.0):
                causes = (
                    ", ".join(cells[model, way].get("slow", ()))
                    or "no cause is known; nnpipe explain shows its layers"
                )
                yield (
                    f"- {model}, {way}: {time / floats.get(best, 1.0):.1f} times as long as "
                    f"{best}: {causes}"
                )


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _score(path: Path) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in (_read(path) or {}).items()) or "–"


def _rows(
    matrix: MatrixFile, cells: Any, word: Any, scores: Mapping[str, str] | None = None
) -> list[str]:
    before = ["model", *(["trained"] if scores else [])]
    lines = [
        "| " + " | ".join([*before, *matrix.ways]) + " |",
        "|" + " --- |" * (len(before) + len(matrix.ways)),
    ]
    for model in matrix.models:
        held = [cells[model, way] for way in matrix.ways]
        if not any(held):
            continue
        words = [
            model,
            *([scores[model]] if scores else []),
            *(word(found) if found else "–" for found in held),
        ]
        lines.append("| " + " | ".join(words) + " |")
    return lines
