"""The site builds without a warning, asks nobody for anything, is searched with success; its
examples run.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nnpipe
from nnpipe.core.registry import FAMILIES, PARTS, components
from nnpipe.scenarios._cli.index import PURPOSES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "gallery").glob("*.ipynb"))


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module of the site's, which lie in a folder of their own."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    for each in ("pages", "api", "references", "gallery"):
        monkeypatch.delitem(sys.modules, each, raising=False)
    return import_module(name)


# -- what needs no build ------------------------------------------------------------------------


def test_each_page_stands_in_the_contents_once(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = module("pages", monkeypatch).contents()
    listed = [page for pages in contents.values() for page in pages]
    there = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if "_build" not in path.parts
    }
    assert sorted(listed) == sorted({*there, "changes", "api/index"} - {"index"})


def test_the_contents_have_the_purposes_of_the_help_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headings = [heading.lower() for heading in module("pages", monkeypatch).contents()]
    assert [heading for heading in headings if heading in PURPOSES] == list(PURPOSES)


def test_no_page_has_the_name_of_one_that_sphinx_writes() -> None:
    """Sphinx writes its own pages last, over ours."""
    assert {path.stem for path in DOCS.glob("*.md")} & {
        "search",
        "genindex",
        "py-modindex",
    } == set()


def test_the_whole_check_builds_the_site_after_the_rest() -> None:
    commands = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert commands[-1] == "exec make check site"


def test_five_kinds_of_readers_find_a_path() -> None:
    section = (
        (DOCS / "index.md")
        .read_text("utf-8")
        .partition("## Where to begin\n")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \|(.*)\|$", section, re.MULTILINE)
    assert [reader for reader, _ in rows] == [
        "have a model file",
        "train",
        "deploy to boards",
        "extend nnpipe",
        "come from another tool",
    ]
    assert all(path.count(".md)") >= 4 for _, path in rows[:-1])
    assert re.findall(r"^\| (\w+) \|.*\.md", section, re.MULTILINE) == [
        "Kenning",
        "TRW",
        "PTUtils",
        "Dnnamo",
        "INNDiE",
    ]


def test_each_public_name_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(module("api", monkeypatch).reference().values())
    described = [
        line.partition(":: ")[2] for line in text.splitlines() if line.startswith(".. auto")
    ]
    assert len(described) == len(set(described))
    assert {f"nnpipe.{name}" for name in nnpipe.__all__ if not name.startswith("_")} <= set(
        described
    )
    for name in (
        "training.Trainer",
        "experiment.Session",
        "layers.NetworkGraph",
        "layers.to_torch",
        "tasks.Detection",
    ):
        assert f"nnpipe.{name}" in described, name
    for family in FAMILIES:
        assert any(name.startswith(f"nnpipe.{family}.") for name in described), family


@pytest.mark.parametrize("family", PARTS)
def test_each_part_has_a_place_with_its_options(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = module("api", monkeypatch).reference()[f"families/{family}.rst"]
    for cls in components(PARTS[family]):
        if cls.__module__.startswith("nnpipe."):
            told = page.partition(f".. py:class:: {cls.__name__}\n")[2].partition(
                ".. currentmodule::"
            )[0]
            assert cls.short_name() in (cls.__name__, *told.split("``")), cls
            assert [
                option.name for option in cls.options() if f"``{option.name}`` : " not in told
            ] == [], cls


def test_links_that_leave_the_folder_lead_to_the_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = module("pages", monkeypatch)
    app = type("App", (), {"srcdir": DOCS})
    source = [
        "[a](../tests/data) [b](../CHANGELOG.md) [c](../examples/digits.yaml) [d](../gone.md) "
        "[e](training.md)"
    ]
    pages.read(app, "measuring", source)
    home = pages.repository()
    assert source == [
        f"[a]({home}/tree/main/tests/data) [b](changes.md) "
        f"[c]({home}/blob/main/examples/digits.yaml) "
        "[d](../gone.md) [e](training.md)"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_is_kept_with_what_it_shows(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat reads notebooks")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], (
        "run: make gallery"
    )
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert kinds & {"execute_result", "stream"}
    assert "error" not in kinds
    assert f"({path.name})" in (DOCS / "gallery" / "index.md").read_text("utf-8")


# -- the examples, run anew ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in (
        "nbclient",
        "ipykernel",
        "torch",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "openvino",
    ):
        pytest.importorskip(package, reason=f"{package} is not installed")
    notebook = module("gallery", monkeypatch).run(path, tmp_path)  # raises where a cell does
    assert any(cell.get("outputs") for cell in notebook.cells)


# -- the site -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path_factory.mktemp("site")
    words = [
        "-q",
        "-W",
        "-n",
        "--keep-going",
        "-b",
        "html",
        "-d",
        str(folder / "trees"),
        str(DOCS),
        str(folder / "html"),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    # The processor's time, for another program may hold the machine.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 120
    return folder / "html"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_small_and_has_an_inventory(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 40e6
    assert (site / "objects.inv").is_file()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_about_searching_is_found_under_its_own_name(site: Path) -> None:
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    number = index["docnames"].index("searching")
    assert index["titles"][number] == "Searching"
    assert "optuna" in (site / "searching.html").read_text("utf-8").lower()
    assert ">Searching</a>" in (site / "index.html").read_text("utf-8")
    assert "Search Page" not in (site / "index.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_page_asks_another_machine_for_anything(site: Path, address: str, browser: Any) -> None:
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    faults: list[object] = []
    page.on("pageerror", lambda error: faults.append(error))
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(pages) > 80
    for path in pages:
        page.goto(f"{address}/{path}")
    page.close()
    assert [url for url in asked if not url.startswith((f"{address}/", "data:"))] == []
    assert faults == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("samplers", "searching.html"),
        ("certificate", "sweeping.html#certificate"),
        ("kill -9", "training.html#after-kill-9"),
        ("calibration", "gallery/calibration.html"),
        ("compare", "api/functions/compare.html"),
    ],
)
def test_the_search_finds_it_in_its_first_three(
    query: str, wanted: str, address: str, browser: Any
) -> None:
    page = browser.new_page()
    page.goto(f"{address}/search.html?q={query.replace(' ', '+')}")
    page.wait_for_selector("#search-results ul.search li:nth-child(3) > a", timeout=60_000)
    hits = page.eval_on_selector_all(
        "#search-results ul.search li > a",
        "links => links.slice(0, 3).map(each => each.getAttribute('href'))",
    )
    page.close()
    assert any(hit == wanted or hit.partition("#")[0] == wanted for hit in hits), hits
