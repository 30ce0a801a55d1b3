"""What every benchmark tells besides its figures."""

from __future__ import annotations

import ast
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_names_the_processor_of_its_run_and_that_of_its_goal(path: Path) -> None:
    """Each closes with an object of ``_table.report``, or puts into its own what
    ``_table.processors`` gives.
    """
    tree = ast.parse(path.read_text("utf-8"))
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & {"report", "processors"}


@pytest.mark.slow  # seconds to minutes, and more on a busy machine
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_quick_run_ends_with_its_result(path: Path, tmp_path: Path) -> None:
    """Whether its goal holds is up to the machine: its status says the same as its closing
    object, and no more.
    """
    command = subprocess.Popen(
        [sys.executable, str(path), "--quick"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # with all that it starts
    )
    try:
        out, err = command.communicate(timeout=1800)
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.communicate()
    if command.returncode == 77:
        pytest.skip(err.splitlines()[-1])
    assert command.returncode in (0, 1), err
    assert "Traceback" not in err, err
    found = json.loads(out.splitlines()[-1])
    assert {"name", "value", "unit", "reference", "ratio", "goal", "holds"} <= found.keys()
    assert command.returncode == (0 if found["holds"] else 1)


@pytest.mark.parametrize("missing", ["folder", "program"])
def test_what_a_benchmark_lacks_is_told_in_a_line_and_by_a_status_of_its_own(
    tmp_path: Path, missing: str
) -> None:
    given, lacking = {
        "folder": (
            ["compression.py", "--quick", "--data", str(tmp_path / "none")],
            "none does not exist",
        ),
        "program": (["c_graphs.py", "--quick"], "not installed: gcc"),
    }[missing]
    done = subprocess.run(
        [sys.executable, *given],
        cwd=FOLDER,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr.splitlines()[-1].startswith("skipped: ")
    assert done.stderr.rstrip().endswith(lacking)


def test_the_closing_object_names_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "_table", raising=False)
    import _table

    assert _table.report([], "x", 1.0, "s", 2.0, 0.5, "<= 1", True, seen_on="a processor") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["goal_seen_on"] == "a processor"
    assert told["processor"]


def test_a_goal_among_several_that_names_no_processor_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "_table", raising=False)
    import _table

    parts = [{"name": "a", "seen_on": "a processor"}, {"name": "b"}]
    with pytest.raises(ValueError, match=r"no processor is named .*: b$"):
        _table.report([], "x", 1.0, "s", 2.0, 0.5, "<= 1", True, parts, seen_on="a processor")


@pytest.mark.parametrize(
    "path", sorted({*FOLDER.glob("*.py")} - {FOLDER / "_table.py"}), ids=lambda path: path.stem
)
def test_each_goal_names_the_processor_on_which_it_was_seen(path: Path) -> None:
    """What says whether a goal holds also says where it did; there is no default."""
    tree = ast.parse(path.read_text("utf-8"))
    # A function may have an argument of the name, such as the one with which a trial reports its
    # progress.
    own = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    arguments = {
        call
        for node in own
        if "report" in {a.arg for a in node.args.args}
        for call in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if {"name", "goal", "holds"} <= keys:
                spread = any(key is None for key in node.keys)  # of _table.processors
                assert "seen_on" in keys or spread, f"{path.name}:{node.lineno}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("report", "growth")
        ):
            if node in arguments:
                continue
            keywords = {word.arg for word in node.keywords}
            assert keywords & {"seen_on", None}, f"{path.name}:{node.lineno}"


@pytest.fixture
def fair(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    for name in ("fair", "_fair_frameworks", "_fair_models", "_fair_tools", "_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("fair")


@pytest.fixture
def search_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "_search_tables", raising=False)
    return importlib.import_module("_search_tables")


class TestFair:
    """How benchmarks/fair.py times and judges."""

    def test_candidates_take_turns_in_rounds_until_the_time_is_over(self, fair: ModuleType) -> None:
        told: list[str] = []

        def timer(name: str) -> Callable[[int], list[float]]:
            return lambda calls: told.append(name) or [0.01] * calls

        found = fair.turns({"a": timer("a"), "b": timer("b")}, 20.0, iter(range(1000)).__next__)
        rounds = len(found["a"])
        assert rounds == len(found["b"]) >= fair.FEWEST_ROUNDS
        turns = told[-2 * rounds :]
        assert all({*turns[place : place + 2]} == {"a", "b"} for place in range(0, len(turns), 2))
        assert all(len(turn) == fair.FEWEST_CALLS for turn in found["a"])

    def test_a_ratio_is_that_of_medians_in_a_round(self, fair: ModuleType) -> None:
        """A machine that is three times as slow in every second round does not change it, and
        neither do outliers.
        """
        slow = [1.0, 3.0] * 10
        ours = [[1.04 * pace, 1.04 * pace, 90.0] for pace in slow]
        theirs = [[pace, 0.2 * pace, pace] for pace in slow]
        ratio = fair.ratio_of(ours, theirs)
        assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.04, 1.04, 1.04))

    def test_the_interval_of_a_ratio_is_that_of_signs(self, fair: ModuleType) -> None:
        ratio = fair.ratio_of([[float(place)] for place in range(1, 11)], [[1.0]] * 10)
        assert (ratio.low, ratio.value, ratio.high) == (2.0, 5.5, 9.0)

    @pytest.mark.parametrize(
        ("ratio", "slower", "marked", "holds"),
        [
            (0.96, 1.29, "", [True, True]),
            (1.06, 1.0, "", [False, True]),
            (0.7, 1.0, "", [False, True]),  # to read less than the framework's own tool is as false
            (1.0, 1.31, "", [True, False]),
            # which excuses no other reading of the same artifact
            (1.06, 1.31, "untuned", [False, True]),
            (1.06, 1.31, "tool: known", [True, False]),
            (1.06, 1.31, "option: known", [False, True]),
        ],
    )
    def test_rows_are_judged_by_medians(
        self, fair: ModuleType, ratio: float, slower: float, marked: str, holds: list[bool]
    ) -> None:
        row = {"framework": "f", "model": "m", "ours, us": 1.0, "its tool, us": 1.0}
        parts = fair.parts_of(row | {"ratio": ratio, "slower": slower, "marked": marked})
        assert [part["holds"] for part in parts] == holds

    def test_a_mark_goes_as_far_as_its_reason(self, fair: ModuleType) -> None:
        frameworks = importlib.import_module("_fair_frameworks")
        mark = frameworks.Mark("option", "known", 1.3, 2.0)
        framework = fair.Framework("onnx", fair.Way("R"), {}, lambda *given: None, (mark,))
        assert fair.marks_of(framework, ["untuned"], 1.0, 1.9) == ["untuned", "option: known"]
        assert fair.marks_of(framework, [], 1.0, 2.1) == []
        assert fair.marks_of(framework, [], 1.0, 1.2) == []


@pytest.fixture
def mutations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    for name in ("mutations", "_mutating", "_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("mutations")


class TestSearchTables:
    """How benchmarks/search_tables.py reads tables of trainings."""

    def test_rows_of_cells_come_in_any_order_and_some_may_be_missing(
        self, search_tables: ModuleType, tmp_path: Path
    ) -> None:
        keys = ["10", "00", "11"]
        found = np.array([[3.0, 5.0], [1.0, np.nan], [7.0, 7.0]])
        np.savez(
            tmp_path / "cells.npz",
            valid_accuracy=found,
            key=np.array(keys, "S2"),
            operations=["skip", "conv"],
            edges=np.array([[0, 1], [0, 2]]),
        )
        table = search_tables.read_table(tmp_path / "cells.npz")
        assert (table.best, table.direction) == (7.0, "maximize")
        assert table.value({"edge_0_1": "conv", "edge_0_2": "skip"}) == 4.0
        assert table.value({"edge_0_1": "skip", "edge_0_2": "skip"}) == 1.0
        assert np.isnan(table.value({"edge_0_1": "skip", "edge_0_2": "conv"}))

    def test_axes_are_described_by_name_or_in_a_file_of_their_own(
        self, search_tables: ModuleType, tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "grid.npz", values=np.arange(6.0).reshape(3, 2))
        about = {"axes": {"rate": [0.1, 0.2, 0.3], "kind": ["a", "b"]}, "direction": "minimize"}
        (tmp_path / "tables.json").write_text(json.dumps({"grid.npz": about}), "utf-8")
        (tmp_path / "own.json").write_text(json.dumps(about), "utf-8")
        for described in (None, tmp_path / "own.json"):
            table = search_tables.read_table(tmp_path / "grid.npz", described)
            assert (table.best, table.value({"rate": 0.3, "kind": "b"})) == (0.0, 5.0)
            assert [each["ordered"] for each in table.space.values()] == [True, False]

    @pytest.mark.parametrize(
        ("arrays", "about", "said"),
        [
            ({"values": np.zeros((2, 3))}, None, "it says the axes of t.npz"),
            (
                {"values": np.zeros((2, 3))},
                {"axes": {"a": [1, 2, 3]}, "direction": "min"},
                "but the axes are a 3",
            ),
            (
                {"values": np.zeros(3)},
                {"axes": {"a": [1, 2, 3]}},
                "direction is minimize or maximize, not None",
            ),
            (
                {"values": np.full(2, np.nan)},
                {"axes": {"a": [1, 2]}, "direction": "max"},
                "has no number",
            ),
            (
                {"other": np.zeros(3)},
                None,
                "expected an array valid_accuracy or values, found other",
            ),
            (
                {"valid_accuracy": np.zeros(3), "operations": ["a"], "edges": [[0, 1]]},
                None,
                "an array key says which",
            ),
        ],
    )
    def test_what_is_wrong_with_a_table_is_told(
        self, search_tables: ModuleType, tmp_path: Path, arrays: Any, about: Any, said: str
    ) -> None:
        np.savez(tmp_path / "t.npz", **arrays)
        if about is not None:
            (tmp_path / "tables.json").write_text(json.dumps(about), "utf-8")
        with pytest.raises(search_tables.TableError, match=said):
            search_tables.read_table(tmp_path / "t.npz")


class TestMutations:
    """How benchmarks/mutations.py plants faults and counts who notices."""

    SOURCE = (
        "LIMIT = 3\n\n\ndef least(of: list[int], floor: int = 2) -> int:\n    é, x = min(of), "
        "1\n{}\n"
    )

    @pytest.mark.parametrize(
        ("line", "faults"),
        [
            ("    return é < x", {"return None", "return (é <= x)"}),
            ("    return x and é", {"return None", "return (x or é)"}),
            ("    return not x", {"return None", "return (x)"}),
            ("    x += len(of) - x", {"x += (len(of) + x)", "x += (len(of) - 1) - x"}),
            ("    x = é if x else of", {"x = (of if x else é)"}),
            ("    x = range(x)", {"x = range(x + 1)"}),
            ("    x = True", {"x = False"}),
            ("    x = f'{x + é}'", set()),
            ("    return None", set()),
        ],
    )
    def test_each_fault_is_one_replacement(
        self, mutations: ModuleType, line: str, faults: set[str]
    ) -> None:
        source = self.SOURCE.format(line).encode()
        found = [fault for fault in mutations.mutations_of(source) if 6 in fault.lines]
        assert {fault.apply(source).decode().splitlines()[5].strip() for fault in found} == faults

    def test_what_is_executed_on_import_is_left_alone(self, mutations: ModuleType) -> None:
        (constant,) = mutations.mutations_of(self.SOURCE.format("    pass").encode())
        assert list(constant.lines) == [5]

    def test_tests_of_a_module_are_named_like_it_or_are_all_of_its_folder(
        self, mutations: ModuleType, tmp_path: Path
    ) -> None:
        for name in ("a/test_one.py", "a/test_one_more.py", "a/test_two.py", "test_top.py"):
            (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tests" / name).touch()
        named = ("tests/a/test_one.py", "tests/a/test_one_more.py")
        assert mutations.tests_of(tmp_path, "nnpipe/a/one.py") == named
        assert mutations.tests_of(tmp_path, "nnpipe/a/_one.py") == named
        assert mutations.tests_of(tmp_path, "nnpipe/a/three.py") == (*named, "tests/a/test_two.py")
        assert mutations.tests_of(tmp_path, "nnpipe/a/b/four.py") == (*named, "tests/a/test_two.py")
        assert mutations.tests_of(tmp_path, "nnpipe/__main__.py") == ()

    @pytest.mark.slow  # it starts pytest a dozen times
    def test_who_notices_is_counted(
        self, mutations: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Of four faults, the quick tests notice two, the slow ones one more, and nobody the
        fourth.
        """
        package, tests = tmp_path / "src" / "nnpipe" / "a", tmp_path / "tests" / "a"
        package.mkdir(parents=True)
        tests.mkdir(parents=True)
        (tmp_path / "pyproject.toml").write_text(
            "[tool.pytest.ini_options]\nmarkers = ['slow']\n", "utf-8"
        )
        (package / "__init__.py").touch()
        (package.parent / "__init__.py").touch()
        (package / "m.py").write_text(
            "def both(x):\n    return x\n\n\ndef shared(x):\n    return x\n\n\ndef slowly(x):\n   "
            " return x\n\n\n"
            "def unnoticed(x):\n    return x\n\n\ndef unreached(x):\n    return x\n",
            "utf-8",
        )
        (tests / "test_m.py").write_text(
            "import pytest\nfrom nnpipe.a import m\n\n\n@pytest.fixture(scope='module')\ndef "
            "made():\n"
            "    return m.shared(1)\n\n\ndef test_uses_it_first(made):\n    assert m.both(2) == "
            "2\n\n\n"
            "def test_looks_at_it(made):\n    assert made == 1\n\n\ndef test_looks_nowhere():\n   "
            " m.unnoticed(1)\n\n\n"
            "@pytest.mark.slow\ndef test_slowly():\n    assert m.slowly(3) == 3\n",
            "utf-8",
        )
        assert (
            mutations.main(["--root", str(tmp_path), "--mutations", "9", "--processes", "1"]) == 1
        )
        told = capsys.readouterr().out.splitlines()
        assert told[0] == "4 faults with seed 0; missed by all tests of their modules: 1 of return"
        rows = {line.split()[0]: line.split()[-1] for line in told[2:-1]}
        assert rows == {
            "nnpipe/a/m.py:2": "tests/a/test_m.py::test_uses_it_first",
            "nnpipe/a/m.py:6": "tests/a/test_m.py::test_looks_at_it",
            "nnpipe/a/m.py:10": "tests/a/test_m.py::test_slowly",
            "nnpipe/a/m.py:14": "-",
        }
        found = json.loads(told[-1])
        assert (found["value"], found["reference"], found["holds"]) == (2, 3, False)
