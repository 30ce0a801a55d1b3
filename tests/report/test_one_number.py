"""A quantity has one number and one name in result file, summary, page, terminal, sweep and
certificate.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nnpipe.measuring.quantities import find_quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.document import Paragraph, Table, Tiles
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.quantity_text import format_quantity
from nnpipe.report.render import render
from nnpipe.report.sections.summary import build_headline_table
from nnpipe.report.writers.json_figures import build_json_summary, collect_figures


def under_load(run: Run, **load) -> Run:
    """The same run, with queries that came on a schedule and had to wait."""
    inference = dict(run.series["inference"].columns)
    if load.get("scenario") == "server":
        inference["scheduled_ns"] = inference["start_ns"] - 1000
    return dataclasses.replace(
        run,
        series={**run.series, "inference": Series(inference)},
        timing={**run.timing, "load": load},
    )


@pytest.fixture(
    params=["local", "remote", "server", "offline"],
    ids=["here", "on a target", "server scenario", "offline scenario"],
)
def run(request, make_run):
    if request.param in ("local", "remote"):
        return make_run("one", calls=3000, wire=request.param == "remote")
    return under_load(make_run("one", calls=3000), scenario=request.param)


def test_file_summary_page_and_terminal_tell_the_same_number(run):
    (candidate,) = create_candidates([run])
    name = f"{candidate.timed.name}_median"
    told = run.to_json()["summary"][name]
    known = collect_figures(candidate)[name]
    (summary,) = build_json_summary([candidate], "T")["candidates"]
    assert told["value"] == known.value == summary["figures"][name]["value"]
    assert told["interval"] == [known.low, known.high] == summary["figures"][name]["interval"]
    text, title = format_quantity(find_quantity(name), known.value), find_quantity(name).title
    tiles = {
        tile.label: tile.value
        for block in render([run], "T").sections[0].blocks
        if isinstance(block, Tiles)
        for tile in block.items
    }
    rows = {row[0].text: row[1].text for row in build_headline_table(candidate).cells()}
    assert tiles[title] == rows[title] == text
    assert run.to_json()["summary"]["accuracy"]["value"] == summary["figures"]["accuracy"]["value"]


def test_every_figure_in_a_file_is_in_the_table_with_its_unit(run):
    (summary,) = build_json_summary(create_candidates([run]), "T")["candidates"]
    for name, known in summary["figures"].items():
        assert known["unit"] == find_quantity(name).unit
    for name, known in run.to_json()["summary"].items():
        if isinstance(known, dict):
            assert known["unit"] == find_quantity(name).unit


def test_a_round_trip_is_never_called_an_inference(make_run):
    remote = make_run("remote", wire=True, calls=3000)
    told = remote.to_json()["summary"]
    inference = remote.series["inference"]
    assert told["latency_median"]["value"] == pytest.approx(np.median(inference["target_ns"]) / 1e9)
    assert told["round_trip_median"]["value"] == pytest.approx(
        np.median(inference["latency_ns"]) / 1e9
    )
    assert "median_latency_ms" not in json.dumps(told)


def test_times_that_count_differently_are_not_compared(make_run):
    runs = [
        make_run("tight", calls=3000),
        under_load(make_run("loaded", seed=2, calls=3000), scenario="server"),
    ]
    section = render(runs, "T").sections[0]
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert {"Median, µs", "Response median, µs"} <= set(table.header)
    place = table.header.index("Response median, µs")
    assert [row[place].text == "–" for row in table.cells()] == [True, False]
    assert any(
        "do not count alike" in block.text
        for block in section.blocks
        if isinstance(block, Paragraph)
    )
    labels = [
        tile.label for block in section.blocks if isinstance(block, Tiles) for tile in block.items
    ]
    assert "Fastest" not in labels
    assert "Front" not in table.header


def test_doubts_stand_where_the_number_first_stands(make_run):
    few = make_run("few", calls=30)
    assert few.to_json()["summary"]["doubts"][0].startswith("too few: ")
    (candidate,) = create_candidates([few])
    assert {row[0].text: row[1].text for row in build_headline_table(candidate).cells()}[
        "Doubts"
    ] == "too few"
    tiles = [
        tile
        for block in render([few], "T").sections[0].blocks
        if isinstance(block, Tiles)
        for tile in block.items
    ]
    assert ("Doubts", "too few") in [(tile.label, tile.value) for tile in tiles]


def test_doubts_of_the_quality_stand_beside_the_accuracy(make_run):
    unknown = dataclasses.replace(
        make_run("unknown", calls=3000), preparation={"source": "unknown"}
    )
    (candidate,) = create_candidates([unknown])
    assert candidate.doubts
    assert unknown.to_json()["summary"]["doubts"] == [
        f"{d.kind}: {d.reason}" for d in candidate.doubts
    ]
