"""What every benchmark tells besides its figures."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_names_the_processor_of_its_run_and_that_of_its_goal(path: Path) -> None:
    """Each closes with an object of ``_table.report``, or puts into its own what ``_table.processors`` gives."""
    tree = ast.parse(path.read_text("utf-8"))
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert calls & {"report", "processors"}


def test_the_closing_object_names_both(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "_table", raising=False)
    import _table

    assert _table.report([], "x", 1.0, "s", 2.0, 0.5, "<= 1", True, seen_on="a processor") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["goal_seen_on"] == "a processor"
    assert told["processor"]
