"""The report has a table of what models need on boards, and says nothing of boards where there
are none.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.document import Plot, Table, Tile, Tiles
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.inputs.pareto_front import compute_pareto_standings
from nnpipe.report.render import render
from nnpipe.report.sections.performance import build_board_section, build_performance_section
from nnpipe.report.sections.summary import build_summary_section
from nnpipe.report.sections.verdict import build_verdict_blocks

BOARD = {
    "flash_bytes": 32816,
    "ram_bytes": 16648,
    "arena_bytes": 16256,
    "data_bytes": 0,
    "stack_bytes": 392,
}
ABOUT = {"board": "mps2-an386", "core": "cortex-m4", "stack_predicted_bytes": 392}


def run(title: str, board: dict[str, int], about: dict[str, Any] = ABOUT) -> Run:
    columns = {
        "start_ns": np.arange(9) * 1000,
        "latency_ns": np.full(9, 900),
        "samples": np.ones(9, np.int64),
        "target_counts": np.full(9, 5_110_840),
    }
    session = {"counter": "instructions", "board": board, "target": about}
    return Run(
        title, (), {"protocol": {}}, {}, {}, {"session": session}, {"inference": Series(columns)}
    )


def texts(table: Table) -> list[list[str]]:
    return [[getattr(cell, "text", cell) for cell in row] for row in table.rows]


def test_the_table_tells_each_size_and_the_count() -> None:
    section = build_board_section(create_candidates([run("small", BOARD), run("elsewhere", {})]))
    assert section is not None
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert table.header == (
        "Candidate",
        "Board",
        "Flash",
        "RAM",
        "Arena",
        "Data",
        "Stack, most used",
        "Stack, predicted",
        "Instructions",
    )
    assert texts(table) == [
        [
            "small",
            "mps2-an386, cortex-m4",
            "32,816",
            "16,648",
            "16,256",
            "0",
            "392",
            "392",
            "5.11\xa0M",
        ]
    ]


def test_it_is_a_section_of_the_report_only_where_there_is_a_board() -> None:
    assert "On the board" in [
        section.title for section in render([run("small", BOARD)], "Report").sections
    ]
    assert "On the board" not in [
        section.title for section in render([run("other", {})], "Report").sections
    ]


def test_what_a_target_tells_of_itself_is_not_trusted() -> None:
    section = build_board_section(
        create_candidates([run("odd", BOARD, {"board": 5, "stack_predicted_bytes": "many"})])
    )
    assert section is not None
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert texts(table)[0][1] == texts(table)[0][7] == "–"


def test_comparisons_have_columns_of_flash_and_memory() -> None:
    other = {**BOARD, "flash_bytes": 40_000}
    tables = [
        block
        for block in build_summary_section(
            create_candidates([run("a", BOARD), run("b", other)])
        ).blocks
        if isinstance(block, Table)
    ]
    (column,) = [place for place, name in enumerate(tables[0].header) if name == "Flash, kB"]
    assert [row[column] for row in texts(tables[0])] == ["32.8", "40.0"]


def timed(title: str, counts: int, latency: int, resources: dict[str, Series] | None = None) -> Run:
    columns = {
        "start_ns": np.arange(9) * 1000,
        "latency_ns": np.full(9, latency),
        "samples": np.ones(9, np.int64),
        "target_counts": np.full(9, counts),
    }
    session = {"counter": "instructions", "board": BOARD, "target": ABOUT}
    series = {"inference": Series(columns), **(resources or {})}
    return Run(title, (), {"protocol": {}}, {}, {}, {"session": session}, series)


def tiles(runs: list[Run]) -> dict[str, Tile]:
    candidates = create_candidates(runs)
    blocks = build_verdict_blocks(candidates, compute_pareto_standings(candidates))
    return {
        tile.label: tile for block in blocks if isinstance(block, Tiles) for tile in block.items
    }


def test_boards_that_keep_no_time_are_ranked_by_what_they_count() -> None:
    found = tiles([timed("m3", 9_000_000, 900), timed("m55", 4_500_000, 2_100)])
    assert "Fastest" not in found
    assert found["Fewest instructions"].value == "m55"
    assert "m3 needs 2.0 times as many" in found["Fewest instructions"].note


def test_a_round_trip_makes_nobody_the_fastest() -> None:
    assert (
        not {"Fastest", "Fewest instructions"}
        & tiles([timed("a", 5, 900), run("b", BOARD), _cycles("c")]).keys()
    )


def _cycles(title: str) -> Run:
    other = timed(title, 5, 100)
    return dataclasses.replace(
        other, timing={"session": {**other.timing["session"], "counter": "cycles"}}
    )


def test_each_curve_of_resources_tells_whose_it_is() -> None:
    columns = {
        "time_ns": np.arange(5) * 10**8,
        "process_bytes": np.full(5, 6.0e7),
        "cpu_percent": np.full(5, 90.0),
    }
    target = {"time_ns": np.arange(5) * 10**8, "process_bytes": np.full(5, 2.0e3)}
    found = timed("board", 5, 900, {"resources": Series(columns), "target": Series(target)})
    captions = [
        block.caption
        for block in build_performance_section(create_candidates([found])).blocks
        if isinstance(block, Plot)
    ]
    memory = [caption for caption in captions if caption.startswith("Memory of the process")]
    assert [caption.partition(":")[0] for caption in memory] == [
        "Memory of the process, on the target",
        "Memory of the process, on the host, where the model does not run",
    ]
    assert "kB" in memory[0]
    assert "MB" in memory[1]
    here = dataclasses.replace(found, components={}, series={"resources": Series(columns)})
    assert not any(
        "host" in str(block)
        for block in build_performance_section(create_candidates([here])).blocks
    )
