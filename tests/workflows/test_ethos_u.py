"""What Vela estimates is told as an estimate, and what it cannot tell is not."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from nnpipe.core.errors import ArtifactError, CompileError, MissingTool
from nnpipe.scenarios.ethos_u import main
from nnpipe.testing.model_files import write_tflite_difference
from nnpipe.testing.session import assert_one_line
from nnpipe.workflows.ethos_u import VELA, estimate_ethos_u

KEYWORDS = (
    Path(__file__).parents[3]
    / "shared"
    / "data"
    / "models"
    / "mlperf_tiny_kws"
    / "kws_ref_model.tflite"
)
HEAD = (
    "system_config,memory_mode,core_clock,inference_time,sram_memory_used,dram_memory_used,on_chip_flash_memory_used,"
    "off_chip_flash_memory_used,cycles_total"
)
ROW = "Ethos_U55_High_End_Embedded,Shared_Sram,500000000.0,0.0001798,21.671875,0.0,0.0,30.375,89900"
NONE = "Ethos_U55_High_End_Embedded,Shared_Sram,500000000.0,0.0,0.0,0.0,0.0,0.0,0"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tflite_difference(tmp_path / "model.tflite").path


def written(row: str, operators: str) -> str:
    """Return a program that writes as Vela does."""
    return f"printf '{HEAD}\\n{row}\\n' > \"$5/model_summary_System.csv\"\nprintf '{operators}'\n"


def vela(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "vela"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_an_estimate_says_that_it_is_one(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vela(
        tmp_path,
        written(ROW, "CPU operators = 1 (2.5%%)\\nNPU operators = 39 (97.5%%)\\n"),
        monkeypatch,
    )
    assert main([str(model), "--output", str(tmp_path / "out.json")]) == 0
    told = capsys.readouterr().out
    assert told.startswith("an estimate by Vela for ethos-u55-128")
    assert "89,900, 0.18 ms at 500 MHz" in told
    assert "not included" in told
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["estimated_by"], found["sram_bytes"], found["flash_bytes"]) == (
        "vela",
        22192,
        31104,
    )


def test_a_model_that_cannot_run_there_has_no_time(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vela(
        tmp_path,
        written(NONE, "CPU operators = 13 (100.0%%)\\nNPU operators = 0 (0.0%%)\\n"),
        monkeypatch,
    )
    found = estimate_ethos_u(model)
    assert (found.cycles, found.seconds) == (None, None)
    assert "none of its 13 operators runs on an Ethos-U" in str(found)


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("echo 'Error: no such operator' >&2; exit 1", CompileError, "no such operator"),
        ("true", CompileError, "no summary"),
        (written("a,b,c,d,e,f,g,h,i", ""), ArtifactError, "cannot be read"),
    ],
)
def test_what_goes_wrong_is_told_in_one_line(
    script: str,
    error: type[Exception],
    said: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vela(tmp_path, script, monkeypatch)
    with pytest.raises(error, match=said) as caught:
        estimate_ethos_u(model)
    assert_one_line(caught.value)


def test_without_vela_its_package_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool, match="pip install ethos-u-vela"):
        estimate_ethos_u(model)
    with pytest.raises(ArtifactError):
        estimate_ethos_u("nowhere.tflite")


@pytest.mark.slow
def test_vela_estimates_the_network_for_keywords() -> None:
    if VELA.find() is None:
        pytest.skip(f"vela is not installed ({VELA.install})")
    if not KEYWORDS.is_file():
        pytest.skip(f"{KEYWORDS.name} is not there")
    found = estimate_ethos_u(KEYWORDS)
    assert found.cpu_operators == 0 < found.npu_operators
    assert 15_000 < found.sram_bytes < 30_000
    assert found.cycles is not None
    assert 50_000 < found.cycles < 200_000
