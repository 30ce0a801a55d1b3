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


def test_a_goal_among_several_that_names_no_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "_table", raising=False)
    import _table

    parts = [{"name": "a", "seen_on": "a processor"}, {"name": "b"}]
    with pytest.raises(ValueError, match=r"no processor is named .*: b$"):
        _table.report([], "x", 1.0, "s", 2.0, 0.5, "<= 1", True, parts, seen_on="a processor")


@pytest.mark.parametrize("path", sorted({*FOLDER.glob("*.py")} - {FOLDER / "_table.py"}), ids=lambda path: path.stem)
def test_each_goal_names_the_processor_on_which_it_was_seen(path: Path) -> None:
    """What says whether a goal holds also says where it did; there is no default."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if {"name", "goal", "holds"} <= keys:
                spread = any(key is None for key in node.keys)  # of _table.processors
                assert "seen_on" in keys or spread, f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("report", "growth"):
            keywords = {word.arg for word in node.keywords}
            assert keywords & {"seen_on", None}, f"{path.name}:{node.lineno}"
