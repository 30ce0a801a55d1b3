"""The page in a real browser: it sorts, filters, fits a telephone, prints, and asks nobody for
anything.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

pytest.importorskip("jinja2", reason="Jinja2 writes the page")
pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser")

from page_fit import assert_fits
from tests.tools.search_files import made_up_search

from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.inputs.search_file import SearchFile
from nnpipe.report.render import build_search_page, render, report_on
from nnpipe.report.result_files import read_report_subject
from nnpipe.report.writers.html import write_html

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
NAMES = (
    "TensorFlowDigitsCNN · as trained",
    "ONNXDynamicQuantizer_per_channel=True → ONNXRuntime",
    "fp16 Alpha",
)


@pytest.fixture(scope="module")
def page_file(make_run, make_profile, tmp_path_factory):
    """A comparison of ten candidates, of which one was never timed, and two show their layers."""
    runs = [
        make_run(
            f"{NAMES[n % 3]} {n}",
            seed=n,
            median_ns=1e6 / (n + 1),
            size=1000 * (5 - n) ** 2 + 1000,
            wire=n == 2,
        )
        for n in range(9)
    ]
    runs[:2] = [
        dataclasses.replace(run, profile=make_profile(n).to_json())
        for n, run in enumerate(runs[:2])
    ]
    runs.insert(4, dataclasses.replace(make_run("<script>alert(1)</script>", seed=20), series={}))
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_html(render(runs, "Ten candidates"), path)
    return path


@pytest.fixture(scope="module")
def pages(page_file, comparison, make_run, tmp_path_factory):
    """A page of each kind: candidates beside each other, candidates that took turns, a sweep and
    a search.
    """
    folder = tmp_path_factory.mktemp("pages")
    comparison.write(folder / "comparison.json")
    (folder / "results").mkdir()
    points = []
    for n in range(30):
        title = (
            f"CNN · ONNXStaticQuantizer(per_channel={n % 2 == 0}) · ONNXRuntime(num_threads={n}) · "
            f"batch {n + 1}"
        )
        make_run(title, seed=n, median_ns=1e6 / (n + 1), calls=50).write(
            folder / "results" / f"{n}.json"
        )
        time, accuracy = 1e-3 / (n + 1), 0.99 - 0.01 * n
        known = {
            "latency_median": (time, time * 0.9, time * 1.1),
            "accuracy": (accuracy, accuracy - 0.02, min(accuracy + 0.02, 1.0)),
            "size": (30_000 + n, 30_000 + n, 30_000 + n),
        }
        figures = {
            name: {"value": value, "low": low, "high": high, "count": 50}
            for name, (value, low, high) in known.items()
        }
        points.append(
            {
                "title": title,
                "result": f"results/{n}.json",
                "model": None,
                "figures": figures,
                "claims": {"size <= 30.01 kB": n <= 10},
                "qualifies": n <= 10,
                "on_front": n % 3 == 0,
                "front_share": 0.9 if n % 3 == 0 else 0.1,
            }
        )
    sweep = {
        "schema": 1,
        "kind": "nnpipe sweep",
        "title": "Thirty",
        "confidence": 0.95,
        "constraints": ["size <= 30.01 kB"],
        "objectives": ["latency_median", "accuracy", "size"],
        "choose": "latency_median",
        "chosen": points[10]["title"],
        "cannot_be_told_from": [],
        "refuted": {},
        "points": points,
        "failed": [{"title": "broken", "reason": "it broke"}],
        "impossible": {"odd": "does not fit"},
    }
    (folder / "sweep.json").write_text(json.dumps(sweep), "utf-8")
    found = {"candidates": page_file}
    for kind in ("comparison", "sweep"):
        of = read_report_subject([folder / f"{kind}.json"])
        found[kind] = folder / f"{kind}.html"
        write_html(
            report_on(create_candidates(of.runs, of.sources), kind, before=of.sections), found[kind]
        )
    found["search"] = folder / "search.html"
    write_html(
        build_search_page(SearchFile.from_json(made_up_search(objectives=2, uncertain=True))),
        found["search"],
    )
    return found


@pytest.fixture
def opened(browser, pages):
    """Opens a page from its file, and fails if it asks for another or complains."""
    contexts, complaints, requests = [], [], []

    def open_page(size=DESK, kind="candidates", **options):
        context = browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(pages[kind].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    # Besides the file itself, there is an icon that is in the page.
    assert {url for url in requests if not url.startswith("data:")} <= {
        path.as_uri() for path in pages.values()
    }


def column(page, heading):
    """The texts of a column of the comparison, top to bottom, without notes; hidden rows are
    left out.
    """
    return page.evaluate(
        """heading => {
            const table = document.querySelector("table.sortable");
            const place = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent.startsWith(heading));
            return [...table.tBodies[0].rows].filter(row => row.offsetParent !== null).map(row => {
                const cell = row.cells[place].cloneNode(true);
                cell.querySelectorAll("small").forEach(note => note.remove());
                return cell.textContent;
            });
        }""",
        heading,
    )


def numbers(texts):
    return [float(text.replace(",", "")) for text in texts if text != "–"]


@pytest.mark.slow
def test_a_click_on_a_heading_sorts_and_another_turns_round(opened):
    page = opened()
    heading = page.get_by_role("columnheader", name="Median").first
    given = column(page, "Median")
    assert numbers(given) != sorted(numbers(given))
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rising = column(page, "Median")
    assert numbers(rising) == sorted(numbers(given))
    assert rising[-1] == "–"
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    falling = column(page, "Median")
    assert numbers(falling) == sorted(numbers(given), reverse=True)
    assert falling[-1] == "–"
    # The first column holds names, but goes by the order in which candidates were given.
    page.get_by_role("columnheader", name="Candidate").first.get_by_role("button").press("Enter")
    assert column(page, "Median") == given
    assert heading.get_attribute("aria-sort") is None


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("comparison", "sweep")), "search"],
)
def test_every_table_sorts_by_every_column_and_loses_no_row(opened, kind):
    page = opened(kind=kind)
    page.evaluate("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    for button in page.get_by_role("button", name="Show all columns").all():
        button.click()
    tables = page.locator("table.sortable").all()
    assert tables
    for table in tables:
        before = sorted(table.locator("tbody tr").all_inner_texts())
        for button in table.locator("thead button").all():
            button.click()
            rising = table.locator("tbody tr").all_inner_texts()
            button.click()
            falling = table.locator("tbody tr").all_inner_texts()
            assert sorted(rising) == sorted(falling) == before


@pytest.mark.slow
def test_the_points_of_a_sweep_are_sorted_and_filtered_by_their_figures(opened):
    page = opened(kind="sweep")
    table = page.locator("table.sortable").first
    assert table.locator("tbody tr").count() == 30
    places = [int(name.rpartition(" ")[2]) for name in table.locator("tbody th").all_inner_texts()]
    table.get_by_role("columnheader", name="Median").get_by_role("button").click()
    sorted_by_time = [
        int(name.rpartition(" ")[2]) for name in table.locator("tbody th").all_inner_texts()
    ]
    # times span three units, from 33 µs to 1 ms
    assert sorted_by_time == sorted(places, reverse=True)
    page.get_by_role("searchbox").first.fill("per_channel=True fails")
    shown = [row for row in table.locator("tbody tr").all() if row.is_visible()]
    assert len(shown) == len(range(12, 30, 2))
    assert all("fails Size" in row.inner_text() for row in shown)


def test_rows_are_filtered_by_all_words(opened):
    page = opened()
    field = page.get_by_role("searchbox").first
    told = page.locator("output").first
    assert told.inner_text() == "10 of 10"
    field.focus()
    # one word is in the name, the other in the note below it
    page.keyboard.type("SCRIPT onnxstatic")
    assert column(page, "Candidate") == ["<script>alert(1)</script>"]
    assert told.inner_text() == "1 of 10"
    field.fill("fp16")
    assert told.inner_text() == "3 of 10"
    page.get_by_role("columnheader", name="Median").first.get_by_role("button").click()
    shown = column(page, "Median")
    assert len(shown) == 3
    assert numbers(shown) == sorted(numbers(shown))
    field.fill("no such candidate")
    assert told.inner_text() == "0 of 10"
    field.press("Escape")
    assert len(column(page, "Candidate")) == 10


def test_short_tables_have_no_filter(opened):
    page = opened()
    fields = page.locator("input[type=search]").count()
    assert fields == page.locator("table.sortable").evaluate_all(
        "tables => tables.filter(table => table.tBodies[0].rows.length >= 8).length"
    )


@pytest.mark.parametrize("kind", ["candidates", "comparison", "sweep", "search"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_the_page_without_scrolling_sideways(opened, scheme, kind):
    page = opened(PHONE, kind, color_scheme=scheme)
    assert_fits(page, PHONE["width"])
    dark = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(160, 169, 180)") is (scheme == "dark")
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")


def test_a_telephone_leaves_columns_out_until_asked(opened):
    page = opened(PHONE)
    table = page.locator("table.sortable").first
    minor = table.locator("th.minor", has_text="Mean")
    assert not minor.is_visible()
    assert table.locator("th", has_text="Median").first.is_visible()
    button = page.get_by_role("button", name="Show all columns").first
    button.click()
    assert minor.is_visible()
    page.get_by_role("button", name="Show fewer columns").first.click()
    assert not minor.is_visible()


def test_a_desk_shows_what_decides_without_scrolling(opened):
    page = opened()
    table = page.locator("table.sortable").first
    for heading in ("Median", "p90", "Accuracy", "Size", "Doubts"):
        place = table.get_by_role("columnheader", name=heading).first.bounding_box()
        assert place["x"] + place["width"] <= DESK["width"]
    scroll, inside = table.evaluate("t => [t.scrollWidth, t.closest('.scroll').clientWidth]")
    assert scroll <= inside + 1
    assert (
        table.evaluate("t => Math.max(...[...t.tBodies[0].rows].map(row => row.offsetHeight))")
        <= 80
    )
    assert not table.locator("th.minor", has_text="Mean").is_visible()
    page.get_by_role("button", name="Show all columns").first.click()
    assert table.locator("th.minor", has_text="Mean").is_visible()


def test_a_telephone_shows_the_median_and_the_p90_whole(opened):
    page = opened(PHONE)
    table = page.locator("table.sortable").first
    for heading in ("Median", "p90"):
        place = table.get_by_role("columnheader", name=heading).first.bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= PHONE["width"]


def test_a_part_is_shown_when_it_is_opened(opened):
    page = opened()
    part = page.locator("details.part").first
    assert not part.locator("svg").first.is_visible()
    part.locator("> summary").click()
    assert part.locator("svg").first.is_visible()
    address = page.locator("details.part").nth(5).get_attribute("id")
    page.evaluate("address => { location.hash = address; }", address)
    page.locator(f"#{address} svg").first.wait_for()


@pytest.mark.slow
def test_what_nobody_opens_is_not_built(browser, make_run, tmp_path):
    """A page of many candidates holds their details as packed text; the page's own policy lets
    its script unpack it.
    """
    runs = [make_run(f"candidate {n}", seed=n, calls=50) for n in range(24)]
    path = tmp_path / "many.html"
    write_html(render(runs, "Many"), path)
    complaints, requests = [], []
    page = browser.new_page(viewport=DESK)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    before = page.evaluate("document.querySelectorAll('*').length")
    assert before < 200 * len(runs)
    assert page.locator("details.part").count() == 3 * len(runs)
    part = page.locator("details.part").nth(30)
    assert part.locator("table").count() == 0
    part.locator("> summary").click()
    part.locator("svg").first.wait_for()
    assert part.locator("table").count() >= 2
    assert part.locator("th button").count() > 0  # what was made can be sorted, as all else
    assert "made by the page's script" not in part.inner_text()
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {path.as_uri()}
    page.close()


@pytest.mark.slow
def test_on_paper_everything_is_unfolded_and_nothing_is_to_be_clicked(opened):
    page = opened()
    page.locator("details").first.wait_for()
    assert page.locator("details:not([open])").count() > 0
    data = page.pdf()
    assert data.startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.get_by_role("searchbox").first.is_visible()


def test_without_scripts_the_page_is_whole(opened):
    page = opened(PHONE, java_script_enabled=False)
    assert page.locator("th.minor").first.is_visible()
    assert page.locator("input").count() == 0
    page.locator("details.part > summary").first.click()
    assert page.locator("details.part svg").first.is_visible()


@pytest.mark.slow
def test_names_are_broken_at_separators(opened):
    page = opened()
    names = page.locator("table.sortable").first.locator("tbody th").all()
    broken = names[1].locator("wbr").count()
    assert broken >= 5
    assert names[1].inner_text().startswith(f"{NAMES[1]} 1")
    tiles = page.locator(".tiles dd")
    for tile in tiles.all():
        assert tile.evaluate("element => element.scrollWidth <= element.clientWidth + 1")


@pytest.mark.slow
def test_the_trials_of_a_search_are_filtered_by_their_state_and_every_picture_is_described(opened):
    page = opened(kind="search")
    table = page.locator("table.sortable").last
    page.get_by_role("searchbox").last.fill("pruned")
    shown = [row for row in table.locator("tbody tr").all() if row.is_visible()]
    assert len(shown) == 9
    pictures = page.locator("svg.plot")
    assert pictures.count() >= 20
    assert pictures.evaluate_all(
        "all => all.every(one => one.getAttribute('role') == 'img' && one.ariaLabel.length > 20)"
    )
    tips = page.locator("svg path > title").all_text_contents()
    assert any(tip.startswith("trial ") and "accuracy" in tip for tip in tips)


def test_pointing_at_a_candidate_tells_its_figures(opened):
    page = opened()
    tips = page.locator("svg path > title").all_text_contents()
    assert any("fp16 Alpha 2" in tip and "on the front in" in tip for tip in tips)
