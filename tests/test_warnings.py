"""Warnings of our own code fail a test; those of other people's code, and those that a processor
makes up, do not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MADE_UP = "invalid value encountered in"
# What a warning says, of which category, and in which module; and whether a test may pass in which
# it is raised.
PLANTED = {
    "ours": ("old way", "DeprecationWarning", "nnpipe.core.quantization", False),
    "the_package_itself": ("old way", "UserWarning", "nnpipe", False),
    "a_test": ("old way", "DeprecationWarning", "tests.core.test_quantization", False),
    "theirs": ("old way", "DeprecationWarning", "onnx.reference.ops.op_gemm", True),
    "alike_in_name": ("old way", "DeprecationWarning", "nnpipelike.module", True),
    "blas_called_by_them": (f"{MADE_UP} dot", "RuntimeWarning", "onnx.reference.ops.op_gemm", True),
    "blas_called_by_us": (f"{MADE_UP} matmul", "RuntimeWarning", "nnpipe.core.quantization", True),
    "real_trouble": (f"{MADE_UP} divide", "RuntimeWarning", "nnpipe.core.quantization", False),
}
LEFT_OPEN = """
def test_a_file_that_nobody_closed(tmp_path):
    open(tmp_path / "file", "w")
"""


@pytest.fixture(scope="module")
def passed(tmp_path_factory) -> frozenset[str]:
    """Return the tests that pass, of one for each warning, run with this project's own settings."""
    folder = tmp_path_factory.mktemp("planted")
    test = folder / "test_planted.py"
    source = ["import warnings", LEFT_OPEN]
    for name, (message, category, module, _) in PLANTED.items():
        source.append(f"def test_{name}():")
        source.append(
            f"    warnings.warn_explicit({message!r}, {category}, 'planted.py', 1, {module!r})\n"
        )
    test.write_text("\n".join(source), "utf-8")
    options = [
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(folder),
    ]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(test)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert len(PLANTED) + 1 == sum(
        map(int, re.findall(r"(\d+) (?:passed|failed)", found.stdout))
    ), found.stdout
    return frozenset(re.findall(r"^PASSED \S+::test_(\w+)", found.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", PLANTED)
def test_only_warnings_of_our_own_fail_a_test(passed, name):
    assert (name in passed) == PLANTED[name][3]


def test_a_file_that_nobody_closed_fails_a_test(passed):
    assert "a_file_that_nobody_closed" not in passed
