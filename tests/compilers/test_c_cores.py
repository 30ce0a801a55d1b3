"""C on emulated Cortex-M computes what the reference kernels do, in the arena and the stack that
were predicted.

Instructions of the DSP extension that are written in assembly run nowhere else.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from installed import needs

from nnpipe.testing.integer_graphs import generate_integer_graph

needs("ai_edge_litert")
REPOSITORY = Path(__file__).resolve().parents[2]
KEYWORDS = (
    REPOSITORY.parent / "shared" / "data" / "models" / "mlperf_tiny_kws" / "kws_ref_model.tflite"
)
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)),
        reason=(
            f"{' or '.join(TOOLS)} is not installed (apt install gcc-arm-none-eabi qemu-system-arm)"
        ),
    ),
]
ONE = argparse.Namespace(quick=True, optimise="-O2")


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    for name in ("_table", "_visual_wake_words", "c_cores"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("c_cores")


@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4", "cortex-m55"])
# with convolutions, dense layers and sums, clamped and not
@pytest.mark.parametrize("seed", [165, 210])
def test_random_graphs_are_exact_on_emulated_cores(core: str, seed: int, cores: ModuleType) -> None:
    found = cores.measured(generate_integer_graph(seed, 8), core, ONE)
    assert found["wrong elements"] == 0
    assert found["memory B"] == found["arena planned B"]


@pytest.mark.parametrize("level", ["-O0", "-Os", "-O3"])
def test_every_level_of_optimisation_computes_the_same(level: str, cores: ModuleType) -> None:
    options = argparse.Namespace(quick=True, optimise=level)
    assert (
        cores.measured(generate_integer_graph(165, 8), "cortex-m4", options)["wrong elements"] == 0
    )


def test_keyword_spotting_is_exact_and_needs_what_was_predicted(cores: ModuleType) -> None:
    if not KEYWORDS.is_file():
        pytest.skip(f"{KEYWORDS.name} is not there")
    found = cores.measured(KEYWORDS.read_bytes(), "cortex-m4", ONE)
    assert found["wrong elements"] == 0
    assert found["memory B"] == found["arena planned B"]
    assert found["stack B"] == found["stack predicted B"] > 0
    assert found["M instructions"] <= 12
    assert found["beyond constants B"] <= 20_000
