"""A pipeline run that was killed is taken up; one that came to its end is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from saying import said_by_nnpipe

from nnpipe.measuring.run import Run
from nnpipe.scenarios.run import main
from nnpipe.workflows.journal import lock_folder

yaml = pytest.importorskip("yaml", reason="PyYAML reads pipelines")
HERE = Path(__file__).resolve().parents[2] / "scenarios"
RESULTS = ("01-as-exported", "02-hanging", "03-as-trained")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        from nearest import write_model
    path: Path = write_model(tmp_path_factory.mktemp("model") / "nearest.onnx")
    return path


def settings(model: Path, deed: str) -> dict[str, Any]:
    """Three candidates; the second hangs, or does what ``deed`` says."""
    runtime = {"class": "planted.PlantedRuntime", "arguments": {"deed": deed, "place": "run"}}
    return {
        "output": "out",
        "dataset": "DigitsDataset",
        "model": {"class": "ONNXModel", "path": str(model), "arguments": {"scale": 16.0}},
        "measure": {"measure_seconds": 0, "measure_samples": 5, "warmup_runs": 0},
        "verify": {"verify_samples": 4},
        "candidates": [
            {"title": "as exported", "runtime": "ONNXRuntime"},
            {"title": "hanging", "runtime": runtime},
            {"title": "as trained"},
        ],
    }


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    paths = [str(HERE), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-m", "nnpipe", "run", "pipeline.yaml", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def done(folder: Path, *arguments: str) -> str:
    with pytest.MonkeyPatch.context() as patch, said_by_nnpipe() as (out, err):
        patch.syspath_prepend(str(HERE))
        patch.chdir(folder)
        status = main(["pipeline.yaml", *arguments])
    said = out.getvalue() + err.getvalue()
    assert status == 0, said
    return said


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "out" / f"{name}.json").read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def killed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a run was killed while it measured its second candidate."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "pipeline.yaml").write_text(
        yaml.safe_dump(settings(model, "hang"), sort_keys=False), "utf-8"
    )
    process = started(folder)
    assert process.stdout is not None
    for line in process.stdout:  # the second one begins when the first is done
        if "[2/3]" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (folder / "out" / "01-as-exported.json").is_file()
    assert not (folder / "out" / "report.rst").exists()
    (folder / "pipeline.yaml").write_text(
        yaml.safe_dump(settings(model, "print"), sort_keys=False), "utf-8"
    )
    return folder


@pytest.fixture
def interrupted(killed: Path, tmp_path: Path) -> Path:
    """Return a copy of what the killed run left, in which the second candidate no longer hangs."""
    return Path(shutil.copytree(killed, tmp_path / "run"))


@pytest.mark.slow
def test_what_a_killed_run_measured_is_taken_up_and_a_finished_run_is_measured_anew(
    interrupted: Path,
) -> None:
    first = (interrupted / "out" / "01-as-exported.json").read_bytes()
    said = done(interrupted)
    assert (
        "as exported: measured already, out/01-as-exported.json; --measure-again measures it anew"
        in said
    )
    assert "[1/3]" not in said
    assert "[2/3] hanging" in said
    assert "[3/3] as trained" in said
    before = results(interrupted)
    assert before["01-as-exported"] == first
    report = (interrupted / "out" / "report.rst").read_text("utf-8")
    assert all(title in report for title in ("as exported", "hanging", "as trained"))
    assert not (interrupted / "out" / ".unfinished").exists()

    said = done(interrupted)
    assert "measured already" not in said
    after = results(interrupted)
    assert all(after[name] != before[name] for name in RESULTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("--measure-again", marks=pytest.mark.slow),
        "measure.measure_samples=6",
        pytest.param("verify.verify_samples=5", marks=pytest.mark.slow),
    ],
)
def test_what_was_measured_otherwise_is_measured_anew(interrupted: Path, change: str) -> None:
    first = (interrupted / "out" / "01-as-exported.json").read_bytes()
    said = done(interrupted, change)
    assert "measured already" not in said
    assert "[1/3] as exported" in said
    assert results(interrupted)["01-as-exported"] != first


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", [pytest.param("01-as-exported.json", marks=pytest.mark.slow), "01-as-exported.onnx"]
)
def test_a_candidate_whose_file_changed_is_measured_anew(interrupted: Path, lost: str) -> None:
    with open(interrupted / "out" / lost, "ab") as file:
        file.write(b" ")
    assert "measured already" not in done(interrupted)
    assert len(Run.read(interrupted / "out" / "01-as-exported.json").series["inference"]) == 5


@pytest.mark.slow
def test_a_folder_serves_one_run_at_a_time(interrupted: Path) -> None:
    with lock_folder(interrupted / "out", "run"):
        process = started(interrupted)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "out: another run is at work here" in said
