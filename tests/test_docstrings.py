"""The examples in docstrings of the public names run, and every public name has one."""

from __future__ import annotations

import doctest
import inspect
import sys
from pathlib import Path

import pytest

import nnpipe

# Those of what compiles or measures: tests/workflows/test_examples.py runs them.
WORK = {
    "benchmark",
    "compare",
    "compare_models",
    "compare_pipeline",
    "compile",
    "conformance",
    "explain",
    "gate",
    "measure",
    "mix",
    "onnx_support",
    "read_ceilings",
    "read_sweep",
    "roofline",
    "run_pipeline",
    "sweep",
    "testrun",
    "verify",
    "Choice",
    "ComparisonResult",
    "ConformanceResult",
    "ExplainResult",
    "GateResult",
    "Measurement",
    "MixResult",
    "ONNXSupport",
    "PipelineResult",
    "RooflineResult",
    "SweepResult",
    "TestrunResult",
    "VerifyResult",
    "KernelTable",
    "PredictResult",
    "learn_kernels",
    "predict",
    "read_kernels",
}
NAMES = sorted(set(nnpipe.__all__) - {"__version__"})
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def example_of(name: str) -> doctest.DocTest:
    """Return the example of a public name, without those of its methods."""
    thing = getattr(nnpipe, name)
    globs = {**vars(sys.modules[thing.__module__]), name: thing}
    (found,) = doctest.DocTestFinder(recurse=False, exclude_empty=False).find(
        thing, name, globs=globs
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    assert "\nExamples\n--------\n" in (inspect.getdoc(getattr(nnpipe, name)) or "")
    # its own, no base class's
    assert vars(getattr(nnpipe, name)).get("__doc__", getattr(nnpipe, name).__doc__)
    assert example_of(name).examples


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WORK])
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    # A component that an example declares can be found afterwards, so it must go on working.
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    failed, tried = runner.run(example_of(name), out=told.append, clear_globs=False)
    assert tried
    assert not failed, "".join(told)


def test_what_is_left_to_others_is_public() -> None:
    assert not WORK - set(NAMES)
