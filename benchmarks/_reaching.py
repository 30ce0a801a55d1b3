"""A plugin of pytest that writes which tests reach which lines: ``pytest -p _reaching``.

``REACHING`` names a JSON file: under ``"lines"`` the lines of interest of each
source file, by its absolute path, and under ``"to"`` the file to write.
Written is an object of the tests that passed, by their ids: the ``path:line``
that each reached, by itself or by a fixture that it shares with other tests.
Only what runs in pytest's own process is seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class _Reaching:
    def __init__(self, wanted: dict[str, list[int]], to: Path) -> None:
        self._wanted = {path: set(lines) for path, lines in wanted.items()}
        self._to = to
        self._now: set[str] = set()
        self._by_fixture: dict[str, set[str]] = defaultdict(set)
        self._by_test: dict[str, set[str]] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Generator[None, Any, Any]:
        """Trace setting up, calling and tearing down, in all threads that are started meanwhile."""
        self._now = set()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self._by_test[item.nodeid] = self._now.union(
                *(self._by_fixture[name] for name in item.fixturenames)
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Count what a shared fixture reaches for all tests that use it, not just for the first."""
        if fixturedef.scope == "function":
            return (yield)
        own, self._now = self._now, self._by_fixture[fixturedef.argname]
        try:
            return (yield)
        finally:
            self._now = own

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write what was reached, unless tests could not be read or did not end."""
        if exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        found = {
            test: sorted(lines)
            for test, lines in self._by_test.items()
            if lines and test not in self._failed
        }
        self._to.write_text(json.dumps(found), "utf-8")

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._follow if frame.f_code.co_filename in self._wanted else None

    def _follow(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        path = frame.f_code.co_filename
        if event == "line" and frame.f_lineno in self._wanted[path]:
            self._now.add(f"{path}:{frame.f_lineno}")
        return self._follow


def pytest_configure(config: pytest.Config) -> None:
    given = json.loads(Path(os.environ["REACHING"]).read_text("utf-8"))
    config.pluginmanager.register(_Reaching(given["lines"], Path(given["to"])))
