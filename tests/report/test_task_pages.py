"""The page of every task in a real browser, from its synthetic data: it fits a desk and a
telephone.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="Jinja2 writes the page")
pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser")

from page_fit import assert_fits

from nnpipe.core.dataset import Dataset
from nnpipe.core.registry import components
from nnpipe.core.task import get_task, list_installed_tasks
from nnpipe.report.render import render
from nnpipe.report.writers.html import write_html

pytestmark = pytest.mark.slow
SIZES = ({"width": 1280, "height": 900}, {"width": 390, "height": 844})
TASKS = [task.name for task in list_installed_tasks(of_plugins=False)]


def synthetic(task):
    """Return the synthetic data of a task."""
    for cls in components(Dataset):
        if cls.__name__.startswith("Synthetic") and cls().spec.task == task:
            return cls(num_samples=200)
    raise LookupError(f"the task {task!r} has no synthetic data set")


def evaluations(dataset):
    """Judge perfect predictions, and ones of which every third is another sample's."""
    dataset.prepare()
    samples = dataset.split("test")
    _, truth = dataset.read(samples)
    perfect = dataset.task.perfect(truth, dataset.spec)
    places = np.arange(len(samples))
    others = np.where(places % 3 == 0, np.roll(places, 1), places)
    mixed = {name: np.asarray(values)[others] for name, values in perfect.items()}
    judged = (dataset.task.judge(each, truth, dataset.spec) for each in (perfect, mixed))
    return [dataset.task.finalize(each) for each in judged]


@pytest.fixture(scope="module", params=TASKS)
def task_page(request, make_run, tmp_path_factory):
    """A page of two candidates that do a task, one of them badly."""
    judged = evaluations(synthetic(request.param))
    runs = [
        dataclasses.replace(
            make_run(f"{request.param} · candidate {n}", seed=n, median_ns=1e6 / (n + 1)),
            evaluation=each,
        )
        for n, each in enumerate(judged)
    ]
    path = tmp_path_factory.mktemp(request.param) / "page.html"
    write_html(render(runs, f"Two candidates for {request.param}"), path)
    # Some metrics are defined for some data only, such as the best five of more than five classes.
    # Sections may call other metrics otherwise, such as times of tokens in a table of their own.
    metrics = get_task(request.param).metrics
    headings = [metric.heading for metric in metrics[:2] if np.isfinite(metric.compute(judged[0]))]
    return request.param, headings, path


@pytest.mark.parametrize("size", SIZES, ids=("desk", "telephone"))
def test_the_page_of_a_task_fits_and_shows_its_metrics(browser, task_page, size):
    name, headings, path = task_page
    complaints = []
    context = browser.new_context(viewport=size)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    assert_fits(page, size["width"])
    words = page.locator("main").inner_text().lower()
    assert [heading for heading in headings if heading.lower() not in words] == []
    empty = page.evaluate(
        "[...document.querySelectorAll('main svg')].filter(svg => !svg.children.length).length"
    )
    assert empty == 0
    assert complaints == []
    if folder := os.environ.get("NNPIPE_TEST_SHOTS"):  # to be looked at
        page.screenshot(path=f"{folder}/{name}-{size['width']}.png", full_page=True)
    context.close()
