"""A sweep's result in words, as a table and as pictures; a file from outside is no danger."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.report.document import Paragraph, Plot, Table, Tiles
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.inputs.sweep_file import SweepFile
from nnpipe.report.render import render, report_on
from nnpipe.report.result_files import SHOWN, read_report_subject
from nnpipe.report.sections.sweep import build_sweep_section


def figure(value, spread=0.1, count=100):
    return {
        "value": value,
        "low": value * (1 - spread),
        "high": value * (1 + spread),
        "count": count,
    }


def point(title, time, accuracy, size, holds=True, front=1.0, **changes):
    return {
        "title": title,
        "result": f"results/{title}.json",
        "model": None,
        "figures": {
            "latency_median": figure(time),
            "accuracy": figure(accuracy, 0.01),
            "size": {"value": size, "low": size, "high": size, "count": 1},
            "latency_p90": {"value": None, "reason": "9 calls cannot tell it"}
            if time > 1
            else figure(time),
        },
        "claims": {"size <= 4 kB": True, "latency_p90 <= 5 ms": holds},
        "qualifies": holds is True,
        "on_front": front > 0.5,
        "front_share": front,
    } | changes


def swept(*points, **changes):
    return {
        "schema": 1,
        "kind": "nnpipe sweep",
        "title": "Digits",
        "confidence": 0.95,
        "constraints": ["size <= 4 kB", "latency_p90 <= 5 ms"],
        "objectives": ["latency_median", "accuracy", "size"],
        "choose": "latency_median",
        "chosen": points[0]["title"],
        "cannot_be_told_from": ["level"],
        "refuted": {},
        "points": list(points),
        "failed": [{"title": "broken", "reason": "it broke"}],
        "impossible": {"odd": "does not fit"},
    } | changes


GIVEN = swept(
    point("fast", 0.001, 0.9, 2000),
    point("level", 0.00105, 0.8, 3000, front=0.2),
    point("slow", 0.9, 0.95, 3500, holds=False, front=0.7),
    point("vague", 0.004, 0.97, 1000, holds=None, front=0.9),
    point("few", 2.0, 0.5, 900, holds=False),
)


def said(data, kind=Paragraph):
    return [
        block
        for block in build_sweep_section(SweepFile.from_json(data)).blocks
        if isinstance(block, kind)
    ]


def test_the_choice_is_told_with_what_it_stands_on_and_ties():
    choice, ties = (block.text for block in said(GIVEN))
    assert choice.startswith(
        "fast is the one to ship, by median inference time. It was measured a second time"
    )
    assert "size <= 4 kB; latency_p90 <= 5 ms: each holds on its whole interval" in choice
    assert ties.startswith("Not to be told from it in median inference time: level. nnpipe compare")
    tiles = {tile.label: (tile.value, tile.note) for tile in said(GIVEN, Tiles)[0].items}
    assert tiles["Ship"] == (
        "fast",
        "best of those that qualify: Median inference time 1.00\u00a0ms (900\u00a0µs to "
        "1.10\u00a0ms)",
    )
    assert tiles["Qualify"][0] == "2 of 5"
    assert tiles["On the Pareto front"][0] == "4"


def test_the_table_has_every_point_with_its_verdict():
    table = said(GIVEN, Table)[0]
    rows = {row[0].text: row for row in table.cells()}
    assert list(rows) == ["fast", "level", "few", "vague", "slow"]
    verdict, front = table.header.index("Verdict"), table.header.index("Front")
    assert {name: row[verdict].text for name, row in rows.items()} == {
        "fast": "chosen",
        "level": "qualifies",
        "slow": "fails p90",
        "vague": "undecided: p90",
        "few": "not known: p90",
    }
    assert [row[front].value for row in rows.values()] == [1.0, 0.2, 1.0, 0.9, 0.7]
    assert rows["fast"][table.header.index("Size, kB")].note == ""


def test_what_kills_each_is_told():
    killed = next(table for table in said(GIVEN, Table) if table.header[1] == "Constraint")
    assert [tuple(cell.text for cell in row) for row in killed.cells()] == [
        ("slow", "latency_p90 <= 5 ms", "fails", "900\u00a0ms (810\u00a0ms to 990\u00a0ms)"),
        (
            "vague",
            "latency_p90 <= 5 ms",
            "cannot be told",
            "4.00\u00a0ms (3.60\u00a0ms to 4.40\u00a0ms)",
        ),
        ("few", "latency_p90 <= 5 ms", "not known", "9 calls cannot tell it"),
    ]
    assert [table.caption for table in said(GIVEN, Table)[2:]] == [
        "1 combination could not be measured",
        "1 combination cannot be: their parts do not fit together",
    ]


def test_where_none_qualifies_that_is_said_first():
    data = swept(
        GIVEN["points"][2], GIVEN["points"][3], chosen=None, refuted={"slow": "latency_p90: fails"}
    )
    first, refuted = said(data)
    assert (first.tone, refuted.tone) == ("warning", "warning")
    assert first.text.startswith("No candidate qualifies")
    assert (
        refuted.text
        == "slow came first, but did not hold when it was measured again: latency_p90: fails."
    )


def test_quality_is_drawn_against_each_cost():
    time, size = said(GIVEN, Plot)
    assert (time.name, size.name) == (
        "sweep-accuracy-against-latency-median",
        "sweep-accuracy-against-size",
    )
    places = {place.label: place for place in time.chart.points}
    assert (places["fast"].x, places["fast"].y) == (pytest.approx(1.0), pytest.approx(90))
    assert places["fast"].x_interval == (pytest.approx(0.9), pytest.approx(1.1))
    assert not places["level"].on_front
    assert {p.label: p.colour for p in time.chart.points} == {
        p.label: p.colour for p in size.chart.points
    }
    assert all(
        figure.name in Pictures().render_svg(figure) or Pictures().render_svg(figure)
        for figure in (time, size)
    )
    loss = copy.deepcopy(GIVEN) | {"objectives": ["latency_median", "accuracy_loss"]}
    assert not said(loss, Plot)  # what no candidate has is not drawn
    for each in loss["points"]:
        each["figures"]["accuracy_loss"] = figure(0.02)
    assert not said(loss, Plot)  # nor is what is alike for all
    for number, each in enumerate(loss["points"]):
        each["figures"]["accuracy_loss"] = figure(0.02 + 0.01 * number)
    (drawn,) = said(loss, Plot)
    assert (drawn.chart.y_label, drawn.chart.points[0].y) == (
        "change of accuracy, points",
        pytest.approx(-2),
    )


def test_many_points_are_drawn_and_the_best_are_named():
    points = [
        point(f"p{n}", 0.001 * (n + 1), 0.5 + n / 500, 1000, front=1.0 if n < 5 else 0.1)
        for n in range(200)
    ]
    (time, _) = said(swept(*points), Plot)
    svg = Pictures().render_svg(time)
    assert all(f">p{n}<" in svg for n in range(5))
    assert ">p7<" not in svg
    assert "and 195 more" in svg
    assert svg.count("on the front in") >= 200


def spoilt(path, value):
    data = copy.deepcopy(GIVEN)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "not the result of a sweep"),
        (spoilt(["schema"], 9), "schema 9 is unknown"),
        (spoilt(["points", 0, "result"], "../../etc/passwd"), "outside of the sweep's folder"),
        (spoilt(["points", 0, "result"], "/etc/passwd"), "outside of the sweep's folder"),
        (spoilt(["points", 0, "front_share"], 3), "3 is not a share from 0 to 1"),
        (spoilt(["points", 0, "claims"], {"a": 1}), "a claim holds, fails, or is null"),
        (spoilt(["points", 0, "figures", "size"], 5), "a figure should be a dict"),
        (spoilt(["points", 0, "figures", "size", "value"], True), "True is not a number"),
        (spoilt(["objectives"], ["colour"]), "unknown metric 'colour'"),
        (spoilt(["constraints"], ["<script>"]), "is not a constraint"),
        (spoilt(["points"], {}), "'points' should be a list"),
        ({key: value for key, value in GIVEN.items() if key != "chosen"}, "'chosen' is missing"),
    ],
)
def test_what_is_no_result_of_a_sweep_is_refused_in_one_line(data, told):
    with pytest.raises(ArtifactError) as caught:
        SweepFile.from_json(data)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
places = st.sampled_from(
    [
        *([key] for key in GIVEN),
        *(["points", 0, key] for key in GIVEN["points"][0]),
        *(["points", 0, "figures", "size", key] for key in ("value", "low", "high", "count")),
        ["points", 0, "figures", "accuracy"],
        ["failed", 0],
    ]
)


@settings(max_examples=examples(300), deadline=None)
@given(places, values)
@example(["points", 0, "figures", "size", "low"], 3.4e168)
def test_no_value_in_the_file_does_more_than_make_it_refused(path, value):
    try:
        found = SweepFile.from_json(spoilt(path, value))
    except ArtifactError:
        return
    for block in build_sweep_section(found).blocks:
        if isinstance(block, Plot):
            Pictures().render_svg(block)


def test_the_report_of_a_sweep_shows_the_most_telling_results(make_run, tmp_path):
    points = [point(f"p{n}", 0.001 * (n + 1), 0.9, 1000, front=n / 20) for n in range(SHOWN + 3)]
    data = swept(*points, chosen="p2")
    (tmp_path / "results").mkdir()
    for each in points:
        make_run(each["title"], seed=len(each["title"]), calls=30).write(tmp_path / each["result"])
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(data), "utf-8")
    found = read_report_subject([path])
    assert [run.title for run in found.runs][:3] == ["p2", "p14", "p13"]
    assert len(found.runs) == SHOWN
    assert "12 of the 15" in found.sections[0].blocks[-1].text
    assert len(render(found.runs, "T").sections) == 4
    with pytest.raises(ConfigError, match="the result of a sweep, which makes a report by itself"):
        read_report_subject([path, tmp_path / points[0]["result"]])
    (tmp_path / points[2]["result"]).unlink()
    with pytest.raises(ArtifactError, match=r"results/p2\.json: no such result file"):
        read_report_subject([path])


def test_the_page_says_how_many_were_measured_and_how_many_are_shown(tmp_path, make_run):
    given_ = swept(*(point(f"p{n}", 0.001 * (n + 1), 0.9, 1000) for n in range(SHOWN + 7)))
    (tmp_path / "results").mkdir()
    for each in given_["points"]:
        make_run(each["title"], calls=80).write(tmp_path / each["result"])
    (tmp_path / "sweep.json").write_text(json.dumps(given_), "utf-8")
    found = read_report_subject([tmp_path / "sweep.json"])
    document = report_on(
        create_candidates(found.runs), "T", before=found.sections, measured=found.measured
    )
    assert document.subtitle.startswith(
        f"{SHOWN + 7} candidates, of which {SHOWN} are shown one by one"
    )
    # The sweep has its own verdict: there is no second one, on other grounds.
    tables = [block for block in document.sections[1].blocks if isinstance(block, Table)]
    assert "Front" in said(given_, Table)[0].header
    assert all("Front" not in table.header for table in tables)
    assert not [block for block in document.sections[1].blocks if isinstance(block, Tiles)]


def test_what_is_claimed_is_the_second_measurement_with_its_doubts():
    again = {
        "result": "confirmations/1.json",
        "figures": {"latency_median": figure(0.002), "latency_p90": figure(0.003)},
        "doubts": [{"kind": "not repeated", "reason": "it was faster when it was chosen"}],
    }
    data = {**GIVEN, "confirmed": again, "confidence_of_each": 0.975}
    tiles = {tile.label: (tile.value, tile.note) for tile in said(data, Tiles)[0].items}
    assert tiles["Ship"][1].endswith(
        "Median inference time 2.00\u00a0ms (1.80\u00a0ms to 2.20\u00a0ms), measured again"
    )
    assert tiles["Doubts about it"][0] == "not repeated"
    warned = [block.text for block in said(data) if block.tone == "warning"]
    assert any("it was faster when it was chosen" in text for text in warned)
    claimed = said(data, Table)[0]
    assert claimed.header == ("Figure", "Certified", "When it was chosen", "Wanted")
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in claimed.cells()}
    assert rows["Median inference time"][:2] == ["2.00\u00a0ms", "1.00\u00a0ms"]
    assert "97.5\u00a0% intervals" in claimed.caption


def test_headings_are_words(tmp_path):
    for table in said(GIVEN, Table):
        assert not [name for name in table.header if "_" in name]
