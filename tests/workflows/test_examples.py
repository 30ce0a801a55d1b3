"""The examples of the public calls run."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    "module", ["comparison.several", "measurement.compile", "measurement.measure", "pipeline.run", "sweep.sweep"]
)
def test_the_example_of_a_call_runs(module: str) -> None:
    found = doctest.testmod(import_module(f"nnpipe.workflows.{module}"))
    assert found.attempted
    assert not found.failed
