"""Flash and memory on a board are figures of results, which constraints and objectives may name."""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.measuring.constraints import MetricConstraint, get_metric_quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.run_figures import BOARD_FIGURES, get_board_bytes, get_board_figure
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.writers.json_figures import collect_cost_figures
from nnpipe.workflows.sweep.estimates import Figures

BOARD = {
    "flash_bytes": 32816,
    "ram_bytes": 16648,
    "arena_bytes": 16256,
    "data_bytes": 0,
    "stack_bytes": 392,
}


def run(board: Any) -> Run:
    return Run("a", (), {"protocol": {}}, {}, {}, {"load_ns": 5, "session": {"board": board}}, {})


def test_they_are_exact_and_known_wherever_figures_are() -> None:
    found = run(BOARD)
    assert [get_board_figure(found, name).value for name in BOARD_FIGURES] == [
        32816,
        16648,
        16256,
        392,
    ]
    assert get_board_figure(found, "ram").low == get_board_figure(found, "ram").high == 16648
    assert {
        name: collect_cost_figures(Candidate.from_run(found))[name].value for name in BOARD_FIGURES
    } == {
        name: Figures(found, None).get_figure(get_metric_quantity(name), 0.95).value
        for name in BOARD_FIGURES
    }


@pytest.mark.parametrize(
    "board", [None, [], {"flash_bytes": -1}, {"flash_bytes": "much"}, {"flash_bytes": True}]
)
def test_what_a_target_tells_is_not_trusted(board: Any) -> None:
    assert get_board_figure(run(board), "flash").value is None
    assert "boards without an operating system" in get_board_figure(run(board), "flash").reason
    assert not get_board_bytes(run(board))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("flash <= 32 KiB", False),
        ("flash <= 256 KiB", True),
        ("ram <= 64 KiB", True),
        ("stack <= 392 B", True),
    ],
)
def test_constraints_name_them(text: str, holds: bool) -> None:
    constraint = MetricConstraint.parse(text)
    assert constraint.evaluate(get_board_figure(run(BOARD), constraint.metric.name)) is holds
