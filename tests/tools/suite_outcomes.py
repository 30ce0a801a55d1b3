"""Running a contract suite on faulty classes in a process of its own, where nobody else finds
them by name.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_LINE = re.compile(r"::(Test\w+)::(\w+)(?:\[[^\]]*\])? (PASSED|FAILED|ERROR|SKIPPED)")
FAULTY = Path(__file__).parents[1] / "testing" / "faulty"


def outcomes(
    module: str, honest: str, faults: Iterable[tuple[str, str]], *words: str
) -> dict[tuple[str, str], set[str]]:
    """Run the tests of an honest class, and of each faulty one the test that must fail.

    Parameters
    ----------
    module
        The file in ``faulty`` that holds the classes.
    honest
        The suite of the class that is as it should be; all of its tests are run.
    faults
        Suites of faulty classes, each with a test that must fail for it.
    words
        Options for pytest.

    Returns
    -------
    dict
        By suite and test, what came of it: ``"PASSED"``, ``"FAILED"``, ``"ERROR"``, ``"SKIPPED"``;
        several if the test has several cases.
    """
    file = FAULTY / module
    wanted = [f"{file}::{honest}", *(f"{file}::{suite}::{test}" for suite, test in faults)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *words,
        *wanted,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=FAULTY.parents[2]
    )
    found: dict[tuple[str, str], set[str]] = {}
    for suite, test, outcome in _LINE.findall(done.stdout):
        found.setdefault((suite, test), set()).add(outcome)
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    return found
