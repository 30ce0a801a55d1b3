"""The examples in docstrings of the public names run."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import pytest

import nnpipe
from nnpipe.compilers import WritingCompiler
from nnpipe.runtimes import SealedRuntime

BASES = (WritingCompiler, SealedRuntime)
"""What authors subclass besides public names."""

# Those of calls that compile or measure: tests/workflows/test_examples.py runs them.
CALLS = {"compare", "compare_models", "compare_pipeline", "compile", "conformance", "gate", "measure", "onnx_support"}
CALLS |= {"read_sweep", "run_pipeline", "sweep", "testrun", "verify", "ways"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples() -> list[doctest.DocTest]:
    """Return the examples of public names and of bases for authors, without those of their methods."""
    found = []
    for thing in (*(getattr(nnpipe, name) for name in sorted(set(nnpipe.__all__) - CALLS - {"__version__"})), *BASES):
        globs = dict(vars(sys.modules[thing.__module__]))
        found += doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs=globs)
    return [one for one in found if one.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_the_example_runs(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=told.append)
    assert tried
    assert not failed, "".join(told)


def test_most_public_names_have_an_example() -> None:
    assert len(examples()) >= 25
