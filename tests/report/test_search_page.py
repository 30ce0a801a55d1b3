"""The page on a search: what it says, also of few, failed, uncertain and very many trials."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from tests.tools.search_files import made_up_search

from nnpipe.report.charts import ParallelAxes, Points
from nnpipe.report.document import Block, Document, Paragraph, Plot, Section, Table, Tiles
from nnpipe.report.inputs.search_file import SearchFile, SearchView
from nnpipe.report.render import build_search_page
from nnpipe.report.sections.search_space import FANOVA_WARNING
from nnpipe.report.writers.html import to_html


def page(content: dict[str, Any]) -> Document:
    return build_search_page(SearchFile.from_json(content))


def blocks_of(sections: tuple[Block, ...] | tuple[Section, ...], kind: type[Any]) -> list[Any]:
    found: list[Any] = []
    for block in sections:
        if isinstance(block, Section):
            found += blocks_of(block.blocks, kind)
        elif isinstance(block, kind):
            found.append(block)
    return found


def test_a_page_has_all_that_an_analysis_needs() -> None:
    document = page(made_up_search())
    assert [section.title for section in document.sections] == [
        "What was found",
        "What matters",
        "Where good trials are",
        "Trials",
        "How it was searched",
    ]
    names = [figure.name for figure in document.figures()]
    assert names[:5] == [
        "history-objective-1",
        "curves",
        "importance-1",
        "importance-best-1",
        "parallel-1",
    ]
    assert sum(name.startswith("slice-1-") for name in names) == 5
    assert sum(name.startswith("pair-1-") for name in names) == 6
    assert len(set(names)) == len(names)
    best = blocks_of(document.sections, Tiles)[0].items[0]
    found = SearchFile.from_json(made_up_search())
    greatest = max(trial.values["accuracy"] for trial in found.select_finished())
    assert (best.label, best.value) == ("Best accuracy", f"{greatest:.5g}")


def test_the_best_so_far_is_the_running_extreme() -> None:
    found = SearchFile.from_json(made_up_search())
    (history,) = [
        figure
        for figure in build_search_page(found).figures()
        if figure.name == "history-objective-1"
    ]
    assert isinstance(history.chart, Points)
    (line,) = history.chart.lines
    values = [trial.values["accuracy"] for trial in found.select_finished()]
    assert line.y[0] == values[0]
    assert line.y[-1] == max(values)
    assert np.all(np.diff(line.y) >= 0)


def test_the_table_holds_pruned_and_failed_trials_and_why() -> None:
    document = page(made_up_search())
    tables = {table.caption: table for table in blocks_of(document.sections, Table)}
    reasons = tables["Reasons of failures"]
    assert reasons.rows[0][0] == "MemoryError: <script>alert(1)</script>"
    (trials,) = [table for caption, table in tables.items() if caption.startswith("All 60 trials")]
    states = [row[2] for row in trials.rows]
    assert states == sorted(states, key=["finished", "pruned", "failed"].index)
    assert states.count("pruned") == 9
    values = [cells[1].value for cells in trials.cells() if cells[2].text == "finished"]
    assert values == sorted(values, reverse=True)
    assert "<script>alert(1)" not in to_html(document)


def test_a_front_has_shares_where_values_are_uncertain() -> None:
    sure = page(made_up_search(objectives=2))
    names = [figure.name for figure in sure.figures()]
    assert names[0] == "front-1-2"
    (front,) = [
        t for t in blocks_of(sure.sections, Table) if t.caption.startswith("No other trial")
    ]
    assert "On the front" not in front.header
    view = SearchView(SearchFile.from_json(made_up_search(objectives=2, uncertain=True)))
    shares = [share for _, share in view.front]
    assert shares == sorted(shares, reverse=True)
    assert any(0 < share < 1 for share in shares)
    certain = {
        trial.number
        for trial, _ in SearchView(SearchFile.from_json(made_up_search(objectives=2))).front
    }
    assert certain <= {trial.number for trial, _ in view.front}
    (front,) = [
        t
        for t in blocks_of(build_search_page(view.found).sections, Table)
        if t.caption.startswith("No other")
    ]
    assert front.header[1] == "On the front"
    assert " to " in next(front.cells())[2].note


def test_repeated_configurations_count_once_with_their_interval() -> None:
    content = made_up_search(4)
    for row, value in zip(content["trials"], (0.5, 0.7, 0.2, 0.3), strict=True):
        row |= {"state": "finished", "values": {"accuracy": value}}
    content["trials"][1]["configuration"] = content["trials"][0]["configuration"]
    point = SearchView(SearchFile.from_json(content)).points[0]
    assert point.values["accuracy"] == pytest.approx(0.6)
    low, high = point.intervals["accuracy"]
    assert low < 0.5
    assert high > 0.7


def test_fanova_comes_with_its_warning() -> None:
    content = made_up_search()
    told = [block.text for block in blocks_of(page(content).sections, Paragraph)]
    assert FANOVA_WARNING not in told
    content["importance"]["accuracy"]["fanova"] = content["importance"]["accuracy"]["additive"]
    document = page(content)
    assert FANOVA_WARNING in [block.text for block in blocks_of(document.sections, Paragraph)]
    assert any("fANOVA" in table.header for table in blocks_of(document.sections, Table))


def test_lines_pass_beside_an_axis_without_a_value_on_it() -> None:
    (parallel,) = [
        figure for figure in page(made_up_search()).figures() if figure.name == "parallel-1"
    ]
    assert isinstance(parallel.chart, ParallelAxes)
    names = [axis.label for axis in parallel.chart.axes]
    assert names == ["rate", "units", "momentum", "optimiser", "bias", "accuracy"]
    values = np.concatenate([group.values for group in parallel.chart.groups])
    assert np.isnan(values[:, names.index("momentum")]).any()
    assert not np.isnan(values[:, names.index("rate")]).any()


@pytest.mark.parametrize("states", [[], ["running"], ["failed"] * 3, ["finished"], ["pruned"] * 2])
def test_a_search_that_has_found_little_has_a_page(states: list[str]) -> None:
    content = made_up_search(max(len(states), 1))
    content["trials"] = content["trials"][: len(states)]
    for row, state in zip(content["trials"], states, strict=True):
        row |= {"state": state, "values": {"accuracy": 0.5} if state == "finished" else {}}
    content["importance"] = {}
    text = to_html(page(content))
    assert "too few finished trials" in text
    assert ("No trial finished." in text) is (states != ["finished"])


def test_few_bad_values_do_not_squeeze_all_others() -> None:
    content = made_up_search()
    content["trials"][0]["values"]["accuracy"] = -1e6
    view = SearchView(SearchFile.from_json(content))
    axis = view.create_value_axis("accuracy")
    assert axis.low > -10
    assert view.count_beyond_axis("accuracy") == 1
    assert (
        "1 worse ones are drawn at the edge"
        in next(build_search_page(view.found).figures()).caption
    )


@pytest.mark.slow
def test_very_many_trials_make_a_page_of_moderate_size() -> None:
    begin = time.process_time()
    text = to_html(page(made_up_search(10_000, objectives=2)))
    assert len(text) < 8e6
    assert "1,000 of 10,000 trials" in text
    assert "Shown are 1,500 of" in text
    assert time.process_time() - begin < 30


def test_alternative_texts_tell_where_the_best_are() -> None:
    figures: dict[str, Plot] = {figure.name: figure for figure in page(made_up_search()).figures()}
    assert "The best tenth has rate mostly" in figures["slice-1-1"].alt
    assert all(figure.alt and figure.caption for figure in figures.values())
