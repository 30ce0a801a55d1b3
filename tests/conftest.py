"""Fixtures that many tests use."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Tests of what needs a program that this machine lacks are skipped.
from nnpipe.testing.pytest_plugin import pytest_runtest_call, pytest_runtest_setup  # noqa: F401

pytest_plugins = ["pytester"]

# what several tests use that is no fixture
sys.path.insert(0, str(Path(__file__).parent / "tools"))

from property_examples import examples  # noqa: E402

# A busy machine makes drawing and running examples slow; no test is to fail of that.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background so, and all that it starts would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# TensorFlow computes convolutions with channels first by oneDNN alone, and takes it by itself on
# some processors only.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

_TESTS = Path(__file__).parent
_FRAMEWORKS_FIRST = (
    "compilers",
    "runtimes",
    "frameworks",
    "onnxconverters",
    "modelwrappers",
    "layers",
    "codegen",
)


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put folders that need the same frameworks beside each other, and mark what a test class
    ``repeats`` as slow.

    Each worker is handed a part of the tests, and steals of the others' when it has done them: so
    most of the frameworks are imported by one worker alone.  What a class names in ``repeats`` are
    tests of a contract that another class runs, or whose subject another test has.
    """
    order = {_TESTS / folder: number for number, folder in enumerate(_FRAMEWORKS_FIRST)}

    @functools.cache
    def place(path: Path) -> int:
        return min(
            (order[folder] for folder in path.parents if folder in order), default=len(order)
        )

    items.sort(key=lambda item: place(item.path))
    for item in items:
        if getattr(item, "originalname", item.name) in getattr(
            getattr(item, "cls", None), "repeats", ()
        ):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no tests of functions and classes that are slow as a whole where none of them would be
    run.

    A fifth of all tests are such, and every worker would make them only to leave them out.
    """
    if collector.config.option.markexpr != "not slow" or not name.startswith(("test", "Test")):
        return None
    marks = getattr(obj, "pytestmark", ())
    if any(
        mark.name == "slow" for mark in (marks if isinstance(marks, list | tuple) else (marks,))
    ):
        return []
    return [] if name in getattr(collector.obj, "repeats", ()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all test modules and what they import without collecting garbage meanwhile: nearly
    all of it stays.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


_NUMBERS = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the test's own, as pytest does.

    pytest reads the names of all folders to find a free one: milliseconds in each test, after
    thousands of tests.
    """
    name = re.sub(r"\W", "_", request.node.name)[:24]  # the path of a Unix socket must be short
    path = tmp_path_factory.getbasetemp() / f"{name}_{next(_NUMBERS)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Find the test that turns logging off for good, rather than a later one that sees nothing
    of what it looks for.
    """
    ours = logging.getLogger("nnpipe")
    level = ours.level
    yield
    ours.setLevel(level)  # which a command line that a test reads may set
    found = logging.root.manager.disable, ours.disabled, ours.propagate
    logging.disable(logging.NOTSET)
    assert found == (logging.NOTSET, False, True), "this test leaves logging turned off"


@pytest.fixture(autouse=True, scope="module")
def old_objects_out_of_sight() -> None:
    """Keep what was imported, here and by tests before these, out of later garbage collections.

    Frameworks leave millions of objects.  Measuring collects garbage before each window, and tests
    open thousands.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def counting_frozen_objects() -> Iterator[Callable[[], int]]:
    """Return what counts the objects that are out of sight; meanwhile say that there are some, as
    there are.

    Counting goes through millions of them, which takes a tenth of a second before each measurement.
    """
    counting = gc.get_freeze_count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", lambda: 1)
        yield counting


@pytest.fixture(autouse=True, scope="session")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what nnpipe remembers of files, here and in subprocesses, out of the user's own
    cache.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets and pretrained models, which only some machines have."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real data sets and models are not here ({folder} does not exist)")
    return folder


def chromium() -> str | None:
    """The path of an installed browser."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    folder = Path(
        os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache" / "ms-playwright")
    )
    return next(
        (
            str(path)
            for path in sorted(folder.glob("chromium*/chrome-linux*/*"))
            if path.name == "chrome"
        ),
        None,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()
